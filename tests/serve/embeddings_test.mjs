// Embeddings, with the programs' own clients.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startServer, until } from './support.mjs';

let server;
before(async () => { server = await startServer(); });
after(async () => { await server.stop(); });

const texts = ['The cat sat on the mat.', 'A dog ran through the park and over the hill.', 'The cat sat on a mat.'];
const openai = async () => new (await import('openai')).default({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const near = (a, b) => a.length === b.length && a.every((x, i) => Math.abs(x - b[i]) < 1e-6);

test('openai: base64, which it asks for by itself, and floats are the same vectors of length 1', async () => {
  const client = await openai();
  const packed = await client.embeddings.create({ model: 'tiny', input: texts });
  const plain = await client.embeddings.create({ model: 'tiny', input: texts, encoding_format: 'float' });
  assert.deepEqual(packed.data.map((one) => one.index), [0, 1, 2]);
  assert.equal(packed.object, 'list');
  assert.equal(packed.data[0].object, 'embedding');
  for (let i = 0; i < 3; ++i) {
    assert.equal(plain.data[i].embedding.length, 512);
    assert.ok(near([...packed.data[i].embedding], plain.data[i].embedding));
    assert.ok(Math.abs(dot(plain.data[i].embedding, plain.data[i].embedding) - 1) < 1e-5);
  }
  const [cat, dog, cats] = plain.data.map((one) => one.embedding);
  assert.ok(dot(cat, cats) > dot(cat, dog), 'what means the same lies closer');
  let count = 0;
  for (const content of texts) count += (await (await server.post('/tokenize', { content })).json()).count;
  assert.deepEqual(plain.usage, { prompt_tokens: count, total_tokens: count });
});

test('openai: token ids are the text that they are, one alone is that among many, and beside answers', async () => {
  const client = await openai();
  const vector = async (input) => (await client.embeddings.create({ model: 'tiny', input, encoding_format: 'float' })).data.map((one) => one.embedding);
  const ids = [];
  for (const content of texts) ids.push((await (await server.post('/tokenize', { content })).json()).tokens);
  const many = await vector(texts);
  const chat = client.chat.completions.create({ model: 'tiny', messages: [{ role: 'user', content: texts[1] }], temperature: 0, max_tokens: 60 });
  assert.deepEqual(await vector(ids), many);
  for (let i = 0; i < 3; ++i) assert.deepEqual(await vector(i === 1 ? texts[i] : ids[i]), [many[i]]);
  const alone = await client.chat.completions.create({ model: 'tiny', messages: [{ role: 'user', content: texts[1] }], temperature: 0, max_tokens: 60 });
  assert.equal((await chat).choices[0].message.content, alone.choices[0].message.content);
});

test('openai: a text of many slices', async () => {
  const client = await openai();
  const input = `${texts.join(' ')} `.repeat(20);
  const { data, usage } = await client.embeddings.create({ model: 'tiny', input, encoding_format: 'float' });
  assert.ok(usage.prompt_tokens > 400);
  assert.ok(Math.abs(dot(data[0].embedding, data[0].embedding) - 1) < 1e-5);
  await until(async () => (await server.metric('kv_cache_usage_perc')) === 0, 'its pages to come back');
});

test('what is wrong is refused by name', async () => {
  const client = await openai();
  for (const [body, param, code] of [
    [{ input: 'x'.repeat(20000) }, 'input', 'context_length_exceeded'],
    [{ input: '' }, 'input', null],
    [{ input: ['x', ''] }, 'input', null],
    [{ input: [] }, 'input', null],
    [{ input: [[]] }, 'input', null],
    [{ input: [1, 'x'] }, 'input', null],
    [{ input: { text: 'x' } }, 'input', null],
    [{}, 'input', null],
    [{ input: 'x', dimensions: 64 }, 'dimensions', 'unsupported_parameter'],
    [{ input: 'x', encoding_format: 'int8' }, 'encoding_format', null],
    [{ input: [9999999] }, null, null],
  ]) {
    await assert.rejects(client.embeddings.create({ model: 'tiny', encoding_format: 'float', ...body }), (error) => error.status === 400 && (error.param ?? null) === param && (error.code ?? null) === code, JSON.stringify(body).slice(0, 60));
  }
  await assert.rejects(client.embeddings.create({ model: 'gone', input: 'x' }), (error) => error.status === 404);
  assert.equal((await client.embeddings.create({ model: 'tiny', input: 'x', dimensions: 512 })).data.length, 1);
});

test('ai, @langchain/openai and ollama: the same vectors', async () => {
  const want = (await (await openai()).embeddings.create({ model: 'tiny', input: texts, encoding_format: 'float' })).data.map((one) => one.embedding);
  const { embedMany } = await import('ai');
  const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
  const model = createOpenAICompatible({ name: 'doppler', baseURL: `${server.url}/v1` }).embeddingModel('tiny');
  assert.deepEqual((await embedMany({ model, values: texts })).embeddings, want);
  const { OpenAIEmbeddings } = await import('@langchain/openai');
  const chain = await new OpenAIEmbeddings({ model: 'tiny', apiKey: 'none', configuration: { baseURL: `${server.url}/v1` } }).embedDocuments(texts);
  chain.forEach((vector, i) => assert.ok(near([...vector], want[i])));
  const { Ollama } = await import('ollama');
  const answer = await new Ollama({ host: server.url }).embed({ model: 'tiny', input: texts });
  assert.deepEqual(answer.embeddings, want);
  assert.ok(answer.prompt_eval_count > 0);
});

test('an embedding model: its own vectors, cut where asked, and no text', async () => {
  const own = await startServer([], { models: ['embed=tests/data/models/embeddinggemma-a'] });
  try {
    const vectors = async (body) => {
      const answer = await (await own.post('/v1/embeddings', body)).json();
      return answer.data.map((one) => one.embedding);
    };
    const inputs = ['a cat', 'two dogs', 'a longer text about a cat and two dogs'];
    const many = await vectors({ input: inputs });
    assert.deepEqual(many.map((one) => one.length), [96, 96, 96]);
    many.forEach((one) => assert.ok(Math.abs(dot(one, one) - 1) < 1e-5));
    const alone = await Promise.all(inputs.map((input) => vectors({ input })));
    assert.deepEqual(alone.map(([one]) => one), many, 'the same bits alone and among others');
    const [cut] = await vectors({ input: inputs[0], dimensions: 32 });
    const length = Math.sqrt(dot(many[0].slice(0, 32), many[0].slice(0, 32)));
    assert.ok(near(cut, many[0].slice(0, 32).map((x) => x / length)));
    assert.deepEqual(await vectors({ input: 'cat', prompt_name: 'query' }), await vectors({ input: 'task: search result | query: cat' }));
    for (const [body, param, code] of [
      [{ input: 'cat', dimensions: 97 }, 'dimensions', 'unsupported_parameter'],
      [{ input: 'cat', prompt_name: 'quarry' }, 'prompt_name', 'unsupported_parameter'],
      [{ input: 'x'.repeat(3000) }, 'input', 'context_length_exceeded'],
    ]) {
      const answer = await own.post('/v1/embeddings', body);
      assert.equal(answer.status, 400);
      const { error } = await answer.json();
      assert.deepEqual([error.param, error.code], [param, code]);
    }
    assert.deepEqual(await vectors({ input: 'x'.repeat(3000), truncate: true }), await vectors({ input: 'x'.repeat(2046) }));
    for (const [where, body] of [
      ['/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }] }],
      ['/v1/completions', { prompt: 'Hi' }],
      ['/v1/messages', { max_tokens: 5, messages: [{ role: 'user', content: 'Hi' }] }],
      ['/api/chat', { model: 'embed', messages: [{ role: 'user', content: 'Hi' }] }],
    ]) {
      const answer = await own.post(where, body);
      assert.equal(answer.status, 400, where);
      assert.match(await answer.text(), /makes vectors of texts/);
    }
    assert.deepEqual((await (await own.post('/api/show', { model: 'embed' })).json()).capabilities, ['embedding']);
    await until(async () => (await own.metric('kv_cache_usage_perc')) === 0, 'its pages to come back');
  } finally {
    await own.stop();
  }
});
