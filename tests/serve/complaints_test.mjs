// What people complain about in servers of this kind, one test each; and load.
import assert from 'node:assert/strict';
import http from 'node:http';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { startServer, until } from './support.mjs';

let server;
before(async () => { server = await startServer(['--queue', '40', '--body-limit', '262144']); });
after(async () => { await server.stop(); });

const messages = [{ role: 'user', content: 'Tell me a story about a brave cat.' }];
const endless = { logit_bias: { 1: -100, 5: -100 } };  // never the tokens that end an answer
const chat = (body, ...rest) => server.post('/v1/chat/completions', { messages, ...body }, ...rest);
const text = async (response) => (await response.json()).choices[0].message.content;
const long = 'Once upon a time there was a brave little cat who lived in a big house. '.repeat(20);

test('a prompt that does not fit is refused, not cut', async () => {
  const response = await chat({ messages: [{ role: 'user', content: long.repeat(8) }] });
  assert.equal(response.status, 400);
  assert.equal((await response.json()).error.code, 'context_length_exceeded');
});

test('the context is not divided by the number of answers that may run', async () => {
  const { max_model_len: context } = await (await server.post('/tokenize', { content: 'x' })).json();
  const { count } = await (await server.post('/tokenize', { messages: [{ role: 'user', content: long }] })).json();
  assert.ok(count > context / 32);
  assert.equal((await chat({ messages: [{ role: 'user', content: long }], max_tokens: 1 })).status, 200);
});

test('the next turn finds the last one in the cache', async () => {
  const question = { role: 'user', content: long };
  await chat({ messages: [question], max_tokens: 1, temperature: 0 });
  const second = await (await chat({ messages: [question, { role: 'assistant', content: 'Yes.' }, { role: 'user', content: 'And?' }], max_tokens: 1 })).json();
  assert.ok(second.usage.prompt_tokens_details.cached_tokens > second.usage.prompt_tokens / 2, JSON.stringify(second.usage));
});

test('a client preamble that changes does not hide the prefix', async () => {
  const ask = (n) => server.post('/v1/messages', { model: 'tiny', max_tokens: 1, messages, system: [{ type: 'text', text: `x-anthropic-billing-header: ${n}` }, { type: 'text', text: long }] });
  await ask(1);
  const { usage } = await (await ask(2)).json();
  assert.ok(usage.cache_read_input_tokens > usage.input_tokens, JSON.stringify(usage));
});

test('work ends when the client leaves, while it decodes and while it waits', async () => {
  const controllers = Array.from({ length: 12 }, () => new AbortController());
  const asked = controllers.map(({ signal }) => chat({ ...endless, stream: true }, {}, signal).then((response) => response.text()).catch((error) => error.name));
  await until(async () => (await server.metric('num_requests_running')) > 0, 'answers to run');
  for (const controller of controllers) controller.abort();
  assert.deepEqual(new Set(await Promise.all(asked)), new Set(['AbortError']));
  await until(async () => (await server.metric('num_requests_running')) === 0 && (await server.metric('num_requests_waiting')) === 0, 'all of them to end');
  await until(async () => (await server.metric('kv_cache_usage_perc')) === 0, 'pages to come back');
});

test('one cancel leaves the others alone', async () => {
  const body = { seed: 3, temperature: 1, max_tokens: 60, ...endless };
  const alone = await text(await chat(body));
  const controller = new AbortController();
  const left = chat({ ...body, stream: true }, {}, controller.signal).then((response) => response.text()).catch(() => {});
  const stays = chat(body);
  setTimeout(() => controller.abort(), 30);
  assert.equal(await text(await stays), alone);
  await left;
});

test('what cannot be constrained is refused by name', async () => {
  const schema = (schema) => ({ type: 'json_schema', json_schema: { name: 'x', schema } });
  for (const [body, param, words] of [
    [{ response_format: schema({ type: 'object', minProperties: 2 }) }, 'response_format.json_schema.schema', /minProperties/],
    [{ response_format: schema({ type: 'nonsense' }) }, 'response_format.json_schema.schema', /nonsense/],
    [{ response_format: { type: 'json_schema', json_schema: { name: 'x' } } }, 'response_format.json_schema.schema', /missing/],
    [{ response_format: { type: 'yaml' } }, 'response_format.type', /json_schema/],
    [{ grammar: 'root ::= other' }, 'grammar', /other/],
    [{ guided_json: {} }, 'guided_json', /response_format/],
    [{ tool_choice: 'sometimes' }, 'tool_choice', /required/],
  ]) {
    const response = await chat(body);
    assert.equal(response.status, 400, param);
    const { error } = await response.json();
    assert.equal(error.param, param);
    assert.match(error.message, words);
  }
  assert.equal((await chat({ response_format: { type: 'text' }, max_tokens: 1 })).status, 200);
});

test('history with broken arguments is accepted', async () => {
  const response = await chat({ max_tokens: 1, messages: [...messages, { role: 'assistant', content: null, tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{"broken' } }] }, { role: 'user', content: 'And?' }] });
  assert.equal(response.status, 200, await response.text());
});

test('bytes that are no UTF-8 and no JSON are a 400', async () => {
  for (const body of [Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d]), '{"messages": ', '[]', '"x"', '', '['.repeat(100000), '{"messages": [1]}', '{"messages": "x"}', '{"messages": [{"role": 5}]}']) {
    const response = await server.post('/v1/chat/completions', body);
    assert.equal(response.status, 400, String(body).slice(0, 30));
    assert.equal(typeof (await response.json()).error.message, 'string');
  }
});

test('status codes', async () => {
  assert.equal((await server.get('/v1/nothing')).status, 404);
  assert.equal((await server.get('/v1/chat/completions')).status, 405);
  assert.equal((await chat({ n: 1000 })).status, 400);
  assert.equal((await chat({ logit_bias: { 99999999: 1 } })).status, 400);
  assert.equal((await server.post('/v1/chat/completions', 'x'.repeat(300000))).status, 413);
  const response = await chat({ max_tokens: 1 }, { 'x-request-id': 'mine-1' });
  assert.equal(response.headers.get('x-request-id'), 'mine-1');
  assert.match((await chat({ max_tokens: 1 }, { 'x-request-id': 'not\tmine' })).headers.get('x-request-id'), /^req_/);
});

test('an answer that never ends by itself ends with the context', async () => {
  const { choices, usage } = await (await chat({ ...endless, temperature: 1, messages: [{ role: 'user', content: long }] })).json();
  assert.equal(choices[0].finish_reason, 'length');
  assert.ok(usage.total_tokens <= 4097);
});

test('a queue that is full says so, and when to come back', async () => {
  const controller = new AbortController();
  const asked = Array.from({ length: 60 }, () => chat({ ...endless, stream: true }, {}, controller.signal).catch(() => null));
  const statuses = (await Promise.all(asked)).map((response) => ({ status: response.status, after: response.headers.get('retry-after') }));
  controller.abort();
  const full = statuses.filter(({ status }) => status === 429);
  assert.equal(full.length, 20);
  assert.ok(full.every(({ after: seconds }) => Number(seconds) > 0));
  await until(async () => (await server.metric('num_requests_running')) === 0, 'the others to end');
});

test('a stream that waits carries pings', async () => {
  const slow = await startServer(['--sequences', '1']);
  try {
    const before = await Promise.all(Array.from({ length: 40 }, () => slow.post('/v1/chat/completions', { messages, stream: true, temperature: 1, ...endless })));
    assert.ok(before.every((other) => other.status === 200));
    for (const other of before) other.text().catch(() => {});  // read, or a collected answer hangs up
    const response = await slow.post('/v1/chat/completions', { messages, stream: true });
    let said = '';
    for await (const bytes of response.body.pipeThrough(new TextDecoderStream())) {
      said += bytes;
      if (said.includes(': ping\n\n') || said.includes('[DONE]')) break;
    }
    assert.match(said, /: ping/);
  } finally {
    slow.child.kill('SIGKILL');
  }
});

test('pages under another name, and of other origins, are refused', async () => {
  const port = Number(new URL(server.url).port);
  const ask = (headers) => new Promise((resolve, reject) => http.get({ port, host: '127.0.0.1', path: '/v1/models', headers }, (response) => { response.resume(); resolve(response.statusCode); }).on('error', reject));
  assert.equal(await ask({ host: 'evil.example' }), 403);
  assert.equal(await ask({ host: `localhost:${port}` }), 200);
  assert.equal(await ask({ origin: 'https://evil.example' }), 403);
  assert.equal(await ask({ host: `127.0.0.1:${port}`, origin: `http://127.0.0.1:${port}` }), 200);
});

test('keys, CORS, and refusing to listen wider without a key', async () => {
  const kept = await startServer(['--cors', 'https://page.example'], { env: { DOPPLER_API_KEY: 'secret' } });
  assert.equal((await kept.get('/v1/models')).status, 401);
  assert.equal((await kept.get('/v1/models', { authorization: 'Bearer wrong!' })).status, 401);
  assert.equal((await kept.get('/v1/models', { authorization: 'Bearer secret' })).status, 200);
  assert.equal((await kept.get('/v1/models', { 'x-api-key': 'secret' })).status, 200);
  assert.equal((await kept.get('/health')).status, 200);
  const page = await kept.get('/v1/models', { 'x-api-key': 'secret', origin: 'https://page.example' });
  assert.equal(page.headers.get('access-control-allow-origin'), 'https://page.example');
  await kept.stop();
  await assert.rejects(startServer(['--host', '0.0.0.0']), /--api-key/);
});

test('junk in place of HTTP, and headers without end', async () => {
  const talk = (bytes) => new Promise((resolve) => {
    let said = '';
    const socket = net.connect(Number(new URL(server.url).port), '127.0.0.1', () => socket.write(bytes));
    socket.on('data', (data) => { said += data; });
    socket.on('close', () => resolve(said));
    socket.on('error', () => resolve(said));
  });
  assert.match(await talk('\x16\x03\x01 junk\r\n\r\n'), /^HTTP\/1\.1 400 /);
  assert.match(await talk(`GET / HTTP/1.1\r\nx: ${'y'.repeat(100000)}\r\n\r\n`), /^HTTP\/1\.1 431 /);
  assert.equal((await server.get('/health')).status, 200);
});

test('the log has one line per request and never the text', async () => {
  await chat({ max_tokens: 2, messages: [{ role: 'user', content: 'a very secret word' }] }, { 'x-request-id': 'logged' });
  await until(() => server.lines().some((line) => line.id === 'logged'), 'the line');
  const lines = server.lines().filter((line) => line.id === 'logged');
  assert.equal(lines.length, 1);
  assert.equal(lines[0].completion_tokens, 2);
  assert.ok(!server.log.includes('secret'));
});

test('several models, loaded when they are asked for and unloaded when idle', async () => {
  const two = await startServer(['--idle-unload', '1'], { models: ['first=models/tiny', 'second=models/tiny'] });
  const ask = async (model) => text(await two.post('/v1/chat/completions', { model, messages, temperature: 0, max_tokens: 8 }));
  assert.deepEqual((await (await two.get('/v1/models')).json()).data.map(({ id }) => id), ['first', 'second']);
  const first = await ask('first');
  assert.equal(await ask('second'), first);
  await new Promise((resolve) => setTimeout(resolve, 2500));
  assert.equal(await ask('first'), first);
  await two.stop();
});

test('SIGTERM lets running answers end, and refuses new ones', async () => {
  const going = await startServer();
  const running = going.post('/v1/chat/completions', { messages, max_tokens: 900, ...endless }).then((response) => response.json());
  await until(async () => (await going.metric('num_requests_running')) > 0, 'the answer to run');
  going.child.kill('SIGTERM');
  await until(async () => (await going.get('/health')).status === 503, 'the server to say that it goes down');
  const refused = await going.post('/v1/chat/completions', { messages });
  assert.equal(refused.status, 503);
  const { usage } = await running;
  assert.equal(usage.completion_tokens, 900);
  assert.equal((await going.exited).code, 0);
});

test('an answer that takes longer than the drain may does not hold the server', async () => {
  const going = await startServer(['--drain', '1', '--sequences', '1']);
  const asked = Array.from({ length: 40 }, () => going.post('/v1/chat/completions', { messages, stream: true, ...endless }).then((response) => response.text()).catch(() => 'cut'));
  await until(async () => (await going.metric('num_requests_waiting')) > 20, 'others to wait');
  going.child.kill('SIGTERM');
  assert.deepEqual(await going.exited, { code: 0, signal: null });
  assert.ok((await Promise.all(asked)).includes('cut'));
});

test('16 clients, a third of them hanging up: every answer is the one computed alone, and all pages come back', async () => {
  const bodies = Array.from({ length: 48 }, (_, k) => ({ seed: k, temperature: 1, max_tokens: 20 + (k % 5) * 10, messages: [{ role: 'user', content: `${long.slice(0, 60 * (k % 7))} Story ${k}.` }] }));
  const alone = [];
  for (const body of bodies) alone.push(await text(await chat(body)));
  let next = 0, compared = 0;
  const client = async () => {
    for (let k = next++; k < bodies.length; k = next++) {
      const controller = new AbortController();
      if (k % 3 === 0) setTimeout(() => controller.abort(), 5 + (k * 7) % 60);
      try {
        const answer = await text(await chat(bodies[k], {}, controller.signal));
        assert.equal(answer, alone[k], `request ${k}`);
        ++compared;
      } catch (error) {
        if (error.name !== 'AbortError') throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: 16 }, client));
  assert.ok(compared >= 32);
  await until(async () => (await server.metric('kv_cache_usage_perc')) === 0 && (await server.metric('num_requests_running')) === 0, 'pages to come back');
});
