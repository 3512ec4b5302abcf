// A kernel's WGSL text, composed as compose() in src/gpu/webgpu/kernel_source.cpp does it: snippets in the order of the
// kernel's `use` lines, directives first.
import {readdirSync, readFileSync} from 'node:fs';
import {join} from 'node:path';

// Kernels and snippets by their section's line: 'kernel: copy', 'snippet: weights = q4_k'. Files without such lines are
// one section, named after the file.
function readSections(ops) {
  const sections = new Map();
  for (const folder of [ops, join(ops, 'lib')]) {
    const kind = folder === ops ? 'kernel' : 'snippet';
    for (const file of readdirSync(folder).filter((name) => name.endsWith('.wgsl'))) {
      const text = readFileSync(join(folder, file), 'utf8');
      const marks = [...text.matchAll(/^\/\/ ((?:kernel|snippet): .*)$/gm)];
      if (marks.length === 0) sections.set(`${kind}: ${file.slice(0, -5)}`, text);
      marks.forEach((mark, i) => sections.set(mark[1].trim(), text.slice(mark.index, marks[i + 1]?.index)));
    }
  }
  return sections;
}

// choices: {weights: 'q4_k'} for snippets with alternatives.
export function kernelText(root, kernel, choices = {}) {
  const sections = readSections(join(root, 'src/gpu/ops'));
  const find = (name) => sections.get(name) ?? (() => { throw new Error(`there is no ${name}`); })();
  const main = find(`kernel: ${kernel}`);
  const texts = [...main.matchAll(/^\/\/ use: (\w+)(?: = (.*))?$/gm)].map(([, snippet, list]) => {
    if (!list) return find(`snippet: ${snippet}`);
    const only = /^\w+$/.test(list.trim()) ? list.trim() : undefined;
    return find(`snippet: ${snippet} = ${only ?? choices[snippet]}`);
  });
  const lines = [...texts, main].join('').split('\n');
  const directive = (line) => /^(enable|requires|diagnostic)\b/.test(line);
  return [...new Set(lines.filter(directive)), ...lines.filter((line) => !directive(line))].join('\n');
}
