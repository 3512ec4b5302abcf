// The page for everybody: by keyboard alone, on a phone's width, in the dark, with patience, and with nothing from anywhere else.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {cleanUp, halt, openBrowser, plainPage, shardBytes, startServer} from './support.mjs';

let server, page;
const asked = [], refused = [];

before(async () => {
  server = await startServer();
  const context = await openBrowser();
  context.on('request', (request) => asked.push(request.url()));
  context.on('console', (message) => /Content Security Policy/i.test(message.text()) && refused.push(message.text()));
  page = await plainPage(context, server.origin);
  await page.waitForSelector('#welcome .model-card');
});
after(cleanUp);

const dialogs = {models: 'Alt+m', settings: 'Alt+s'};
const focused = () => page.evaluate(() => document.activeElement.textContent.trim() || document.activeElement.id);

test('nothing is wider than a phone', async () => {
  await page.setViewportSize({width: 360, height: 640});
  const wide = () => page.evaluate(() => [...document.querySelectorAll('body *')]
    .filter((element) => element.getClientRects().length > 0 && !element.closest('svg') && !element.parentElement.closest('.chip'))
    .filter((element) => element.getBoundingClientRect().right > innerWidth + 0.5 || element.getBoundingClientRect().left < -0.5)
    .map((element) => element.id || element.className || element.tagName));
  assert.deepEqual(await wide(), []);
  const {bottom} = await page.evaluate(() => {
    document.getElementById('model-name').textContent = 'a-model-with-a-name-that-goes-on-and-on-q4_k_m';
    document.getElementById('problem-text').textContent = 'A sentence of some length that says what has happened, and what to do.';
    for (const part of ['problem', 'problem-action']) document.getElementById(part).hidden = false;
    return document.querySelector('header').getBoundingClientRect();
  });
  assert.deepEqual(await wide(), []);
  assert.ok(bottom < 64, `the header is ${bottom} pixels high`);
  await page.evaluate(() => {
    document.getElementById('model-name').textContent = 'No model';
    for (const part of ['problem', 'problem-action']) document.getElementById(part).hidden = true;
  });
  for (const [name, keys] of Object.entries(dialogs)) {
    await page.keyboard.press(keys);
    await page.waitForSelector(`#${name}[open]`);
    assert.deepEqual(await wide(), [], name);
    await page.keyboard.press('Escape');
    await page.waitForSelector(`#${name}:not([open])`, {state: 'attached'});
  }
});

test('words stand out from their ground by day and by night', async () => {
  const contrast = () => page.evaluate(() => {
    const brush = document.createElement('canvas').getContext('2d');
    const light = (colour) => {
      brush.fillStyle = colour;
      brush.fillRect(0, 0, 1, 1);
      const [r, g, b] = [...brush.getImageData(0, 0, 1, 1).data].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = light(getComputedStyle(document.body).backgroundColor);
    const ratios = ['body', '#welcome p'].map((at) => {
      const ink = light(getComputedStyle(document.querySelector(at)).color);
      return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    });
    return {ground, ratios};
  });
  const seen = {};
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({colorScheme});
    seen[colorScheme] = await contrast();
    assert.ok(seen[colorScheme].ratios.every((ratio) => ratio >= 4.5), JSON.stringify(seen[colorScheme]));
  }
  assert.ok(seen.light.ground > 0.8 && seen.dark.ground < 0.1, JSON.stringify(seen));
});

test('a download tells how fast it is and how long it takes, can be cancelled, and goes on', async () => {
  const part = 4_000_000;
  server.fault = halt(part, false);
  await page.click('#welcome button:has-text("Load")');
  await page.waitForFunction(() => /^28 %.* left$/.test(document.getElementById('progress-text').textContent));
  assert.match(await page.textContent('#progress-text'), /^28 % of 14\.2 MB · [\d.]+ [kMG]?B\/s · \d+:\d\d left$/);
  await page.click('#cancel-load');
  await page.waitForSelector('#welcome:not([hidden])');
  server.fault = null;
  server.requests.length = 0;
  await page.click('#open-models');
  await page.waitForSelector('#stored li:has-text("tiny · ")');
  assert.match(await page.textContent('#stored li span'), /^tiny · 4\.\d MB · not complete$/);
  await page.click('#stored button:has-text("Go on")');
  await page.waitForSelector('.chip.ready', {timeout: 60_000});
  assert.equal(server.bytesOf(/shard_\d/), shardBytes(server.models.tiny) - part);
  await page.evaluate(() => localStorage.clear());
  await page.reload();
});

test('a keyboard is enough to load a model and to write to it', async () => {
  await page.evaluate(() => document.activeElement.blur());
  for (let i = 0; i < 12 && await focused() !== 'Load'; ++i) await page.keyboard.press('Tab');
  assert.equal(await focused(), 'Load');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.chip.ready', {timeout: 60_000});
  await page.waitForFunction(() => document.activeElement.id === 'prompt');
});

test('everything came from the page\'s own server', () => {
  assert.ok(asked.length > 10, `${asked.length} requests`);
  assert.deepEqual(asked.filter((url) => !url.startsWith(`${server.origin}/`) && !/^(blob|data):/.test(url)), []);
});

test('the page may fetch from where a visitor says, and run nothing that was written into it', async () => {
  assert.deepEqual(refused, []);
  const {blocked, ran} = await page.evaluate(async () => {
    const blocked = new Set();
    const last = new Promise((resolve) => addEventListener('securitypolicyviolation', ({effectiveDirective, blockedURI}) => {
      blocked.add(`${effectiveDirective} ${blockedURI}`);
      if (blockedURI === 'http://192.0.2.1/') resolve();
    }));
    const box = document.createElement('div');
    box.innerHTML = '<button onclick="globalThis.ran = true">';
    box.append(Object.assign(document.createElement('script'), {textContent: 'globalThis.ran = true'}));
    document.body.append(box);
    box.firstChild.click();
    for (const url of ['https://127.0.0.1:1/', 'http://localhost:1/', 'http://192.0.2.1/']) await fetch(url).catch(() => {});
    await last;
    box.remove();
    return {blocked: [...blocked].sort(), ran: globalThis.ran};
  });
  assert.equal(ran, undefined);
  assert.deepEqual(blocked, ['connect-src http://192.0.2.1/', 'script-src-attr inline', 'script-src-elem inline']);
});
