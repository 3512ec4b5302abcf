// A line per step over the layers, on a logarithmic scale.
// Shown at first: what a layer gives on, and what its two halves add.
const shown = ['out', 'attn_residual', 'attention', 'ffn_out'];
const colours = ['#4f6df5', '#e4663a', '#2fa35b', '#b04fd0'];

const element = (name, attributes = {}, text = '') => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
};

/** [{name, values by layer}] from the engine's list of steps. */
export function byLayer(steps) {
  const series = new Map();
  for (const step of steps) {
    const match = /^layer(\d+)\.(.+)$/.exec(step.step);
    if (!match) continue;
    if (!series.has(match[2])) series.set(match[2], {name: match[2], values: [], largest: [], notFinite: 0});
    const line = series.get(match[2]);
    line.values[Number(match[1])] = step.rms;
    line.largest[Number(match[1])] = step.largest;
    line.notFinite += step.notFinite;
  }
  return [...series.values()];
}

export function drawChart(figure, choices, steps) {
  const all = byLayer(steps);
  // The golden angle keeps the hues of neighbours apart.
  const colour = (line) => colours[shown.indexOf(line.name)] ?? `hsl(${(all.indexOf(line) * 137.5 + 40) % 360} 60% 50%)`;
  const draw = () => {
    const names = new Set([...choices.querySelectorAll('input:checked')].map((box) => box.value));
    const width = Math.min(640, Math.max(300, figure.clientWidth || 640));
    figure.replaceChildren(plot(all.filter((line) => names.has(line.name)), colour, width));
  };
  choices.replaceChildren(...all.map((line) => {
    const label = document.createElement('label');
    const box = Object.assign(document.createElement('input'), {type: 'checkbox', value: line.name, checked: shown.includes(line.name)});
    const dot = document.createElement('i');
    dot.style.background = colour(line);
    box.addEventListener('change', draw);
    label.append(box, dot, line.name + (line.notFinite ? ` (${line.notFinite} not finite)` : ''));
    return label;
  }));
  draw();
}

function plot(lines, colour, width) {
  const height = Math.round(width / 2.1), left = 44, right = 8, top = 10, bottom = 28;
  const svg = element('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img'});
  const layers = Math.max(1, ...lines.map((line) => line.values.length));
  const values = lines.flatMap((line) => line.values).filter((value) => value > 0);
  svg.append(element('title', {}, `Root mean square of ${lines.map(({name}) => name).join(', ')} over ${layers} layers`));
  if (values.length === 0) return svg;
  const low = Math.floor(Math.log10(Math.min(...values)) * 2) / 2 - 0.05;
  const high = Math.ceil(Math.log10(Math.max(...values)) * 2) / 2 + 0.05;
  const x = (layer) => left + (width - left - right) * (layers === 1 ? 0.5 : layer / (layers - 1));
  const y = (value) => top + (height - top - bottom) * (1 - (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low));
  const decades = [];
  for (let power = Math.ceil(low); power <= high; ++power) decades.push(10 ** power);
  if (decades.length < 2) decades.push(10 ** low, 10 ** high);
  for (const value of decades) {
    svg.append(element('line', {class: 'axis', x1: left, x2: width - right, y1: y(value), y2: y(value)}));
    svg.append(element('text', {x: left - 6, y: y(value) + 4, 'text-anchor': 'end'}, String(Number(value.toPrecision(2)))));
  }
  const every = Math.ceil(layers / (width < 450 ? 8 : 16));
  for (let layer = 0; layer < layers; layer += every) {
    svg.append(element('text', {x: x(layer), y: height - 9, 'text-anchor': 'middle'}, `${layer}`));
  }
  svg.append(element('text', {x: left - 10, y: height - 9, 'text-anchor': 'end'}, 'layer'));
  for (const line of lines) {
    const points = line.values.map((value, layer) => `${x(layer)},${y(value)}`).join(' ');
    svg.append(element('polyline', {points, fill: 'none', stroke: colour(line), 'stroke-width': 2}));
    line.values.forEach((value, layer) => {
      const dot = element('circle', {cx: x(layer), cy: y(value), r: 3.2, fill: colour(line)});
      dot.append(element('title', {}, `layer ${layer} ${line.name}: rms ${value.toPrecision(4)}, largest ${line.largest[layer].toPrecision(4)}`));
      svg.append(dot);
    });
  }
  return svg;
}
