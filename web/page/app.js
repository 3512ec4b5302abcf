// The page: pick a model, talk to it, look inside it.
import {Doppler} from './lib/index.js';
import {drawChart} from './chart.js';
import {loadSettings, sampling, settingsForm} from './settings.js';
import {ChatLog} from './chat.js';
import {asDuration, asSize, drawModelLists, drawStored} from './models.js';

const $ = (id) => document.getElementById(id);
const chat = new ChatLog($('chat'));
const settings = loadSettings();
const form = settingsForm(settings, () => state.model?.info.recommended);
const state = {model: null, url: null, offers: [], loading: null, answering: null};
globalThis.doppler = state;  // for the console

function complain(error, action = null) {
  const sentence = error.message.charAt(0).toUpperCase() + error.message.slice(1);
  $('problem-text').textContent = /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
  $('problem').dataset.code = error.code ?? 'internal';
  $('problem-action').hidden = !action;
  $('problem-action').onclick = () => {
    $('problem').hidden = true;
    action?.();
  };
  $('problem').hidden = false;
}

function show() {
  const busy = state.loading !== null;
  $('welcome').hidden = busy || state.model !== null || chat.messages.length > 0;
  $('progress').hidden = !busy;
  $('prompt').disabled = !state.model;
  $('prompt').placeholder = state.model ? 'Write a message' : 'Load a model first';
  $('send').disabled = !state.model || state.answering !== null;
  $('send').hidden = state.answering !== null;
  $('stop').hidden = state.answering === null;
  $('open-inspect').disabled = !state.model || state.answering !== null;
  $('model-name').textContent = state.model ? state.model.info.id : busy ? 'Loading' : 'No model';
  $('open-models').classList.toggle('ready', state.model !== null);
}

function tellProgress({phase, loaded = 0, total = 0, rate = 0, secondsLeft = null}) {
  const bar = $('progress-bar');
  if (total > 0 && (phase === 'download' || phase === 'upload')) bar.value = loaded / total;
  else bar.removeAttribute('value');
  $('progress').dataset.phase = phase;
  const done = total ? `${Math.floor(loaded / total * 100)} % of ${asSize(total)}` : '';
  $('progress-text').textContent = {
    check: 'Asking for the model',
    wait: 'Another tab is downloading this model; waiting for it',
    download: [done, rate ? `${asSize(rate)}/s` : '', secondsLeft !== null ? `${asDuration(secondsLeft)} left` : ''].filter(Boolean).join(' · '),
    upload: `On its way to the GPU · ${done}`,
    ready: 'Ready',
  }[phase] ?? '';
}

async function unload() {
  state.answering?.abort();
  const {model} = state;
  state.model = null;
  await model?.unload();
}

async function load(url) {
  state.loading?.abort();
  await unload();
  $('models').close();
  $('problem').hidden = true;
  const abort = new AbortController();
  state.loading = abort;
  state.url = url;
  $('progress-title').textContent = `Loading ${url.replace(/\/$/, '').split('/').at(-1)}`;
  tellProgress({phase: 'check'});
  show();
  try {
    const model = await Doppler.load(url, {
      onProgress: tellProgress, signal: abort.signal, context: settings.context || undefined,
    });
    if (state.loading !== abort) return void model.unload();
    adopt(model);
    localStorage.setItem('doppler-last-model', url);
  } catch (error) {
    if (state.loading === abort && error.code !== 'cancelled') complain(error, () => load(url));
  } finally {
    if (state.loading === abort) state.loading = null;
    show();
    drawLists();
  }
}

function adopt(model) {
  state.model = model;
  form.show();
  model.lost.then((error) => {
    if (state.model !== model) return;
    state.model = null;
    model.unload();
    state.answering?.abort();
    state.answering = null;
    chat.settle();
    show();
    // The conversation stays; only the model is loaded again.
    complain(error, () => load(state.url));
  });
  $('prompt').disabled = false;
  $('prompt').focus();
}

async function answer() {
  const abort = new AbortController();
  state.answering = abort;
  show();
  const messages = chat.messages.map(({role, content}) => ({role, content}));
  if (settings.system) messages.unshift({role: 'system', content: settings.system});
  const line = chat.begin();
  const {model} = state;
  try {
    const generation = model.chat(messages, {...sampling(settings), signal: abort.signal});
    for await (const piece of generation) line.add(piece);
    line.finish(await generation.result);
  } catch (error) {
    line.fail();
    if (error.code === 'usage' || await model.usable()) {
      complain(error);
    } else if (state.model === model || state.model === null) {
      state.model = null;
      model.unload();
      complain(error, () => load(state.url));
    }
  } finally {
    state.answering = null;
    show();
    if (state.model) $('prompt').focus();
  }
}

async function send() {
  const text = $('prompt').value.trim();
  if (!text || !state.model || state.answering) return;
  $('prompt').value = '';
  grow();
  $('problem').hidden = true;
  chat.addUser(text);
  await answer();
}

function grow() {
  const box = $('prompt');
  box.style.height = 'auto';
  box.style.height = `${box.scrollHeight + 2}px`;
}

function showVerdict(comparison) {
  const {firstBad, kernel, stages} = comparison ?? {stages: []};
  const wrong = stages.find(({name}) => name === firstBad);
  $('inspect-verdict').hidden = !comparison;
  $('inspect-verdict').classList.toggle('bad', stages.length === 0 || Boolean(firstBad));
  $('inspect-verdict').textContent = firstBad
    ? `First out of bounds: ${firstBad}, relative error ${wrong.relError.toPrecision(2)}${kernel ? `, kernel ${kernel}` : ''}. Save the bundle; doppler debug --compare says why.`
    : stages.length ? `All ${stages.length} stages are within bounds.` : 'There was nothing to compare.';
}

async function inspect() {
  const button = $('inspect-form').querySelector('button');
  button.disabled = true;
  $('inspect-next').textContent = 'Running';
  try {
    const compare = $('inspect-reference').files[0];
    const {ids, stages, top, comparison, bundle} = await state.model.debug({prompt: compare ? undefined : $('inspect-prompt').value, compare});
    drawChart($('chart'), $('chart-steps'), stages.map(({name: step, ...numbers}) => ({step, ...numbers})));
    const likely = top.map(({piece, probability}) => `“${piece}” ${(probability * 100).toFixed(1)} %`);
    $('inspect-next').textContent = `${ids.length} tokens. Likely next: ${likely.join(', ')}`;
    showVerdict(comparison);
    URL.revokeObjectURL($('inspect-bundle').href);
    $('inspect-bundle').href = URL.createObjectURL(bundle);
    $('inspect-bundle').hidden = false;
  } catch (error) {
    $('inspect').close();
    complain(error, error.code === 'usage' ? null : () => load(state.url));
  } finally {
    button.disabled = false;
  }
}

async function drawLists() {
  drawModelLists(state.offers, state.model ? state.url : null, load);
  await drawStored($('stored'), $('room'), {
    current: state.model ? state.url : null,
    load,
    remove: async (model) => {
      try {
        if (state.url === model.url) await unload();
        await Doppler.remove(model.folder);
      } catch (error) {
        complain(error);
        $('models').close();
      }
      show();
      drawLists();
    },
  });
}

function bind() {
  const openers = {models: drawLists, settings: () => form.show(), inspect: () => {}};
  for (const [name, before] of Object.entries(openers)) {
    $(`open-${name}`).addEventListener('click', () => {
      before();
      $(name).showModal();
    });
    $(name).addEventListener('click', (event) => event.target === $(name) && $(name).close());
  }
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  $('prompt').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  $('prompt').addEventListener('input', grow);
  $('stop').addEventListener('click', () => state.answering?.abort());
  $('cancel-load').addEventListener('click', () => state.loading?.abort());
  $('problem-close').addEventListener('click', () => $('problem').hidden = true);
  $('new-chat').addEventListener('click', () => {
    state.answering?.abort();
    chat.clear();
    show();
    $('prompt').focus();
  });
  $('other-model').addEventListener('submit', (event) => {
    event.preventDefault();
    load($('model-url').value);
  });
  $('inspect-form').addEventListener('submit', (event) => {
    event.preventDefault();
    inspect();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && !document.querySelector('dialog[open]')) state.answering?.abort();
    const key = {m: 'open-models', i: 'open-inspect', s: 'open-settings', n: 'new-chat'}[event.key.toLowerCase()];
    if (!event.altKey || !key || document.querySelector('dialog[open]')) return;
    event.preventDefault();
    $(key).click();
  });
}

async function start() {
  bind();
  chat.restore();
  show();
  try {
    const offers = await (await fetch('models.json')).json();
    state.offers = offers.map((offer) => ({...offer, url: new URL(offer.url, location.href).href}));
  } catch {
    state.offers = [];
  }
  drawLists();
  const missing = await Doppler.missing();
  if (missing) return complain(missing);
  // Whoever comes back finds the model as it was left; its files are here.
  const last = localStorage.getItem('doppler-last-model');
  if (last && (await Doppler.stored().catch(() => [])).some(({url, complete}) => complete && url === last)) load(last);
}

// After one visit the page itself also opens without a network.
navigator.serviceWorker?.register('sw.js').catch(() => {});
start();
