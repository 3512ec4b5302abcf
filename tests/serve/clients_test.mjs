// The programs' own clients against `doppler serve models/tiny`.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startServer, until } from './support.mjs';

let server;
before(async () => { server = await startServer(); });
after(async () => { await server.stop(); });

const messages = [{ role: 'user', content: 'Tell me a story about a brave cat.' }];
const same = { model: 'tiny', temperature: 0.8, seed: 7, max_tokens: 24 };
const openai = async () => new (await import('openai')).default({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });

test('openai: chat, streamed and not, is the same text', async () => {
  const client = await openai();
  const whole = await client.chat.completions.create({ ...same, messages });
  assert.equal(whole.object, 'chat.completion');
  assert.equal(whole.choices[0].message.role, 'assistant');
  assert.equal(whole.choices[0].finish_reason, 'length');
  assert.equal(whole.usage.completion_tokens, 24);
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + 24);
  let text = '', usage = null, reasons = [];
  for await (const chunk of await client.chat.completions.create({ ...same, messages, stream: true, stream_options: { include_usage: true } })) {
    assert.equal(chunk.object, 'chat.completion.chunk');
    text += chunk.choices[0]?.delta.content ?? '';
    if (chunk.choices[0]?.finish_reason) reasons.push(chunk.choices[0].finish_reason);
    if (chunk.usage) usage = chunk.usage;
    if (chunk.usage) assert.deepEqual(chunk.choices, []);
  }
  assert.ok(text.length > 10);
  assert.equal(text, whole.choices[0].message.content);
  assert.deepEqual(reasons, ['length']);
  assert.equal(usage.completion_tokens, 24);
  assert.ok(usage.prompt_tokens_details.cached_tokens >= 0);
});

test('openai: the stream helper puts the same message together', async () => {
  const client = await openai();
  const final = await client.chat.completions.stream({ ...same, messages }).finalChatCompletion();
  const whole = await client.chat.completions.create({ ...same, messages });
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
});

test('openai: n answers are those of the seeds after the first', async () => {
  const client = await openai();
  const many = await client.chat.completions.create({ ...same, messages, n: 3 });
  assert.deepEqual(many.choices.map((choice) => choice.index), [0, 1, 2]);
  for (let k = 0; k < 3; ++k) {
    const alone = await client.chat.completions.create({ ...same, seed: same.seed + k, messages });
    assert.equal(many.choices[k].message.content, alone.choices[0].message.content);
  }
});

const person = {
  type: 'object',
  properties: { name: { type: 'string', maxLength: 8 }, age: { type: 'integer', minimum: 0, maximum: 120 }, pet: { enum: ['cat', 'dog'] } },
  required: ['name', 'age', 'pet'],
  additionalProperties: false,
};
function checkPerson(text) {
  const value = JSON.parse(text);
  assert.deepEqual(Object.keys(value).sort(), ['age', 'name', 'pet']);
  assert.ok([...value.name].length <= 8);
  assert.ok(Number.isInteger(value.age) && value.age >= 0 && value.age <= 120);
  assert.ok(['cat', 'dog'].includes(value.pet));
}

test('openai: an answer keeps to a schema, streamed and not, beside others that are free', async () => {
  const client = await openai();
  const held = { ...same, max_tokens: 200, messages, response_format: { type: 'json_schema', json_schema: { name: 'person', strict: true, schema: person } } };
  const free = client.chat.completions.create({ ...same, messages });
  const whole = await client.chat.completions.create({ ...held, n: 2 });
  for (const choice of whole.choices) {
    checkPerson(choice.message.content);
    assert.equal(choice.finish_reason, 'stop');
  }
  let text = '';
  for await (const chunk of await client.chat.completions.create({ ...held, stream: true })) text += chunk.choices[0]?.delta.content ?? '';
  assert.equal(text, whole.choices[0].message.content);
  assert.equal((await free).choices[0].message.content, (await client.chat.completions.create({ ...same, messages })).choices[0].message.content);
  const listed = await client.chat.completions.create({ ...same, messages, grammar: 'root ::= "yes" | "no"' });
  assert.ok(['yes', 'no'].includes(listed.choices[0].message.content));
});

test('openai and ollama: schemas in the words of the other APIs', async () => {
  const client = await openai();
  const response = await client.responses.create({ model: 'tiny', input: 'Who?', text: { format: { type: 'json_schema', name: 'person', schema: person } } });
  checkPerson(response.output_text);
  const { Ollama } = await import('ollama');
  const answer = await new Ollama({ host: server.url }).chat({ model: 'tiny', messages, format: person, options: { seed: 1, num_predict: 200 } });
  checkPerson(answer.message.content);
});

test('openai: stop strings end the answer and are not shown', async () => {
  const client = await openai();
  const whole = (await client.chat.completions.create({ ...same, messages })).choices[0].message.content;
  const word = whole.split(' ')[4];
  const cut = await client.chat.completions.create({ ...same, messages, stop: [word] });
  assert.equal(cut.choices[0].finish_reason, 'stop');
  assert.equal(cut.choices[0].message.content, whole.slice(0, whole.indexOf(word)));
});

test('openai: log-probabilities', async () => {
  const client = await openai();
  const { logprobs, message } = (await client.chat.completions.create({ ...same, temperature: 0, messages, logprobs: true, top_logprobs: 3 })).choices[0];
  assert.equal(logprobs.content.length, 24);
  assert.equal(logprobs.content.map((token) => token.token).join('').trim(), message.content.trim());
  for (const token of logprobs.content) {
    assert.ok(token.logprob <= 0);
    assert.equal(token.top_logprobs.length, 3);
    assert.equal(token.top_logprobs[0].token, token.token, 'greedy takes the likeliest');
    assert.deepEqual(token.bytes, [...Buffer.from(token.token)]);
    assert.ok(token.top_logprobs.reduce((sum, other) => sum + Math.exp(other.logprob), 0) <= 1.0001);
  }
  const streamed = [];
  for await (const chunk of await client.chat.completions.create({ ...same, temperature: 0, messages, logprobs: true, top_logprobs: 3, stream: true })) {
    streamed.push(...(chunk.choices[0]?.logprobs?.content ?? []));
  }
  assert.deepEqual(streamed, logprobs.content);
});

test('openai: the bytes of a token are its own, also where they are no character', async () => {
  const client = await openai();
  const { tokens } = await (await server.post('/tokenize', { content: '\u{1F984}', add_special: false })).json();
  const parts = [];
  for (const id of tokens) {
    const { logprobs } = (await client.chat.completions.create({ model: 'tiny', messages, max_tokens: 1, temperature: 0, logprobs: true, logit_bias: { [id]: 100 } })).choices[0];
    parts.push(...logprobs.content[0].bytes);
  }
  assert.deepEqual(Buffer.from(parts).toString().trim(), '\u{1F984}');
});

test('openai: logit_bias bans and forces', async () => {
  const client = await openai();
  const { tokens } = await (await server.post('/tokenize', { content: ' cat', add_special: false })).json();
  const forced = await client.completions.create({ model: 'tiny', prompt: 'The', max_tokens: 3, temperature: 0, logit_bias: { [tokens[0]]: 100 }, logprobs: 0 });
  assert.equal(new Set(forced.choices[0].logprobs.tokens).size, 1);
});

test('openai: completions with text and with token ids', async () => {
  const client = await openai();
  const byText = await client.completions.create({ model: 'tiny', prompt: 'The color of the sky is', max_tokens: 8, temperature: 0, logprobs: 2 });
  const { tokens } = await (await server.post('/tokenize', { content: 'The color of the sky is' })).json();
  const byIds = await client.completions.create({ model: 'tiny', prompt: tokens, max_tokens: 8, temperature: 0 });
  assert.equal(byText.object, 'text_completion');
  assert.equal(byIds.choices[0].text, byText.choices[0].text);
  assert.equal(byText.choices[0].logprobs.text_offset[0], 0);
  assert.equal(byText.choices[0].logprobs.tokens.length, byText.choices[0].logprobs.token_logprobs.length);
});

test('openai: responses, streamed and not', async () => {
  const client = await openai();
  const ask = { model: 'tiny', input: messages[0].content, instructions: 'You tell stories.', temperature: 0, max_output_tokens: 24 };
  const whole = await client.responses.create(ask);
  assert.equal(whole.status, 'incomplete');
  assert.equal(whole.incomplete_details.reason, 'max_output_tokens');
  assert.ok(whole.output_text.length > 10);
  assert.equal(whole.usage.output_tokens, 24);
  const kinds = [];
  const stream = client.responses.stream(ask);  // throws where an event comes before its item
  for await (const event of stream) if (event.type !== kinds.at(-1)) kinds.push(event.type);
  assert.equal((await stream.finalResponse()).output_text, whole.output_text);
  assert.deepEqual(kinds, ['created', 'in_progress', 'output_item.added', 'content_part.added', 'output_text.delta', 'output_text.done', 'content_part.done', 'output_item.done', 'incomplete'].map((kind) => `response.${kind}`));
});

test('openai: models', async () => {
  const client = await openai();
  assert.deepEqual((await client.models.list()).data.map((model) => model.id), ['tiny']);
  assert.equal((await client.models.retrieve('tiny')).id, 'tiny');
});

test('openai: errors are its own classes', async () => {
  const { default: OpenAI } = await import('openai');
  const client = await openai();
  await assert.rejects(client.chat.completions.create({ ...same, model: 'gone', messages }), (error) => error instanceof OpenAI.NotFoundError && error.code === 'model_not_found' && /tiny/.test(error.message));
  await assert.rejects(client.chat.completions.create({ ...same, messages: [{ role: 'user', content: 'cat '.repeat(3000) }] }), (error) => error instanceof OpenAI.BadRequestError && error.code === 'context_length_exceeded');
  await assert.rejects(client.chat.completions.create({ ...same, messages, temperature: 'hot' }), (error) => error instanceof OpenAI.BadRequestError && error.param === 'temperature');
});

test('openai: an abort ends the work', async () => {
  const client = await openai();
  const stream = await client.chat.completions.create({ model: 'tiny', temperature: 1, messages, stream: true, logit_bias: { 1: -100, 5: -100 } });
  let chunks = 0;
  for await (const chunk of stream) if (chunk.choices.length && ++chunks === 3) break;
  await until(async () => (await server.metric('num_requests_running')) === 0, 'the answer to end');
  assert.equal(server.lines().findLast((line) => line.model).finish, 'client_gone');
});

const endless = { 1: -100, 5: -100 };  // never the tokens that end an answer
async function ended(begin) {
  const before = server.lines().filter((line) => line.model).length;
  await begin();
  await until(async () => (await server.metric('num_requests_running')) === 0, 'the answer to end');
  await until(() => server.lines().filter((line) => line.model).length > before, 'the line of the log');
  assert.equal(server.lines().findLast((line) => line.model).finish, 'client_gone');
}

test('the other clients: an abort ends the work', async () => {
  const { streamText } = await import('ai');
  const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
  const { default: Anthropic } = await import('@anthropic-ai/sdk');
  const { Ollama } = await import('ollama');
  const { ChatOpenAI } = await import('@langchain/openai');
  const long = [{ role: 'user', content: 'Tell me a very long story.' }];
  await ended(async () => {
    const stop = new AbortController();
    const model = createOpenAICompatible({ name: 'doppler', baseURL: `${server.url}/v1`, transformRequestBody: (body) => ({ ...body, logit_bias: endless }) })('tiny');
    const stream = streamText({ model, messages: long, temperature: 1, abortSignal: stop.signal, onError: () => {} });
    for await (const part of stream.textStream) if (part) break;
    stop.abort();
  });
  await ended(async () => {
    const stream = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 }).messages.stream({ model: 'tiny', messages: long, max_tokens: 900, temperature: 100, top_k: 0, top_p: 1 });
    stream.on('text', () => stream.abort());
    await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
  });
  await ended(async () => {
    const stream = await new Ollama({ host: server.url }).chat({ model: 'tiny', messages: long, stream: true, format: { type: 'string', minLength: 2000 } });
    await assert.rejects(async () => { for await (const part of stream) stream.abort(); }, { name: 'AbortError' });
  });
  await ended(async () => {
    const stop = new AbortController();
    const client = new ChatOpenAI({ model: 'tiny', temperature: 1, apiKey: 'none', maxRetries: 0, modelKwargs: { logit_bias: endless }, configuration: { baseURL: `${server.url}/v1` } });
    await assert.rejects(async () => { for await (const chunk of await client.stream('A long story.', { signal: stop.signal })) stop.abort(); });
  });
});

test('ai with @ai-sdk/openai-compatible: text and stream', async () => {
  const { generateText, streamText } = await import('ai');
  const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
  const model = createOpenAICompatible({ name: 'doppler', baseURL: `${server.url}/v1`, includeUsage: true })('tiny');
  const whole = await generateText({ model, messages, seed: 7, temperature: 0.8, maxOutputTokens: 24 });
  const stream = streamText({ model, messages, seed: 7, temperature: 0.8, maxOutputTokens: 24 });
  let text = '';
  for await (const part of stream.textStream) text += part;
  assert.equal(text, whole.text);
  assert.equal(whole.finishReason, 'length');
  assert.equal((await stream.usage).outputTokens, 24);
});

test('@anthropic-ai/sdk: messages, streamed and not, and counting', async () => {
  const { default: Anthropic } = await import('@anthropic-ai/sdk');
  const client = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
  const ask = { model: 'tiny', messages, max_tokens: 24, temperature: 0, system: 'You tell stories.' };
  const whole = await client.messages.create(ask);
  assert.equal(whole.type, 'message');
  assert.equal(whole.stop_reason, 'max_tokens');
  assert.equal(whole.usage.output_tokens, 24);
  const final = await client.messages.stream(ask).finalMessage();
  assert.deepEqual(final.content, whole.content);
  const counted = await client.messages.countTokens({ model: 'tiny', messages, system: 'You tell stories.' });
  assert.equal(counted.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
  const word = whole.content[0].text.split(' ')[4];
  const stops = { ...ask, stop_sequences: ['never said', word] };
  for (const cut of [await client.messages.create(stops), await client.messages.stream(stops).finalMessage()]) {
    assert.equal(cut.stop_reason, 'stop_sequence');
    assert.equal(cut.stop_sequence, word);
    assert.equal(cut.content[0].text, whole.content[0].text.slice(0, whole.content[0].text.indexOf(word)));
  }
  await assert.rejects(client.messages.create({ ...ask, model: 'gone' }), (error) => error instanceof Anthropic.NotFoundError);
});

test('ollama: chat, generate, list, show', async () => {
  const { Ollama } = await import('ollama');
  const client = new Ollama({ host: server.url });
  const options = { temperature: 0, num_predict: 24 };
  const whole = await client.chat({ model: 'tiny', messages, options });
  let text = '', last;
  for await (last of await client.chat({ model: 'tiny', messages, options, stream: true })) text += last.message.content;
  assert.equal(text, whole.message.content);
  assert.equal(last.done_reason, 'length');
  assert.equal(last.eval_count, 24);
  assert.ok(last.eval_duration > 1000, 'nanoseconds');
  assert.equal((await client.generate({ model: 'tiny', prompt: messages[0].content, options })).response, text);
  assert.deepEqual((await client.list()).models.map((model) => model.name), ['tiny']);
  assert.match((await client.show({ model: 'tiny' })).template, /start_of_turn/);
  await assert.rejects(client.chat({ model: 'gone', messages }), /tiny/);
});

test('@langchain/openai: chat and stream', async () => {
  const { ChatOpenAI } = await import('@langchain/openai');
  const client = new ChatOpenAI({ model: 'tiny', temperature: 0, maxTokens: 24, apiKey: 'none', configuration: { baseURL: `${server.url}/v1` } });
  const whole = await client.invoke(messages[0].content);
  let text = '';
  for await (const chunk of await client.stream(messages[0].content)) text += chunk.content;
  assert.equal(text, whole.content);
  assert.equal(whole.usage_metadata.output_tokens, 24);
});
