// The lists of models: what is offered, what is kept.
import {Doppler} from './lib/index.js';

export function asSize(bytes) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) {
    bytes /= 1000;
    ++unit;
  }
  return `${bytes.toFixed(unit > 0 && bytes < 100 ? 1 : 0)} ${units[unit]}`;
}

export function asDuration(seconds) {
  const whole = Math.ceil(seconds);
  return whole < 3600 ? `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`
    : `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
}

const make = (name, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
};

export function drawModelLists(offers, current, load) {
  for (const list of document.querySelectorAll('[data-list]')) {
    list.replaceChildren(...offers.map(({name, about, url, bytes}) => {
      const button = make('button', {className: 'main', disabled: url === current}, url === current ? 'Loaded' : 'Load');
      button.setAttribute('aria-label', `Load ${name}`);
      button.addEventListener('click', () => load(url));
      return make('div', {className: 'model-card'},
        make('div', {}, make('strong', {}, name), make('p', {}, [about, bytes ? asSize(bytes) : ''].filter(Boolean).join(' · '))), button);
    }));
  }
}

export async function drawStored(list, room, {current, load, remove}) {
  let stored = [];
  try {
    stored = await Doppler.stored();
  } catch (error) {
    room.textContent = error.message;
    return;
  }
  list.replaceChildren(...stored.map((model) => {
    const text = `${model.name} · ${asSize(model.bytes)}${model.complete ? '' : ' · not complete'}`;
    const again = make('button', {disabled: !model.url || model.url === current}, model.url === current ? 'Loaded' : model.complete ? 'Load' : 'Go on');
    again.addEventListener('click', () => load(model.url));
    const away = make('button', {}, 'Delete');
    away.setAttribute('aria-label', `Delete ${model.name}`);
    away.addEventListener('click', () => remove(model));
    return make('li', {}, make('span', {title: model.url}, text), again, away);
  }));
  if (stored.length === 0) list.replaceChildren(make('li', {className: 'quiet'}, 'Nothing yet'));
  const {usage = 0, quota = 0} = await navigator.storage.estimate();
  room.textContent = `This page uses ${asSize(usage)} of the ${asSize(quota)} that the browser allows it.`;
}
