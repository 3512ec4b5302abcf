// Calls of tools that were demanded, and thoughts before an answer that is held, with the programs' own clients.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startServer, variantOfTiny } from './support.mjs';

// Templates that write calls and thoughts; tiny itself has words for neither.
const calls = (source) => `{% if tools %}<tool_call>{{ tools | tojson }}</tool_call>\n{% endif %}${source}`;
const thoughts = (source) => `{# </think> #}${source}{% if add_generation_prompt %}<think>\n{% endif %}`;
const kThinkEnd = 0;  // the token </think>

let server;
before(async () => {
  server = await startServer([], { models: ['models/tiny', variantOfTiny('calls', calls), variantOfTiny('thinks', thoughts, '</think>')] });
});
after(async () => { await server.stop(); });

const messages = [{ role: 'user', content: 'What is the weather in Bonn?' }];
const city = { type: 'object', properties: { city: { enum: ['Bonn', 'Rome'] } }, required: ['city'], additionalProperties: false };
const zone = { type: 'object', properties: { zone: { type: 'string', maxLength: 6 } }, required: ['zone'], additionalProperties: false };
const tools = [
  { type: 'function', function: { name: 'weather', description: 'of a city', parameters: city } },
  { type: 'function', function: { name: 'time', parameters: zone } },
];
const same = { temperature: 0.8, seed: 3, max_tokens: 200 };
const openai = async () => new (await import('openai')).default({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });

function checkCall(name, argumentsOf) {
  if (name === 'weather') assert.ok(['Bonn', 'Rome'].includes(argumentsOf.city));
  else assert.equal(typeof argumentsOf.zone, 'string');
  assert.equal(Object.keys(argumentsOf).length, 1);
  assert.ok(['weather', 'time'].includes(name));
}

for (const model of ['calls', 'tiny']) {
  test(`openai: tool_choice required, streamed and not (${model})`, async () => {
    const client = await openai();
    const ask = { ...same, model, messages, tools, tool_choice: 'required', parallel_tool_calls: false };
    const { message, finish_reason: reason } = (await client.chat.completions.create(ask)).choices[0];
    assert.equal(reason, 'tool_calls');
    assert.equal(message.content, null);
    assert.equal(message.tool_calls.length, 1);
    checkCall(message.tool_calls[0].function.name, JSON.parse(message.tool_calls[0].function.arguments));
    const streamed = (await client.chat.completions.stream(ask).finalChatCompletion()).choices[0];
    assert.equal(streamed.finish_reason, 'tool_calls');
    assert.deepEqual(streamed.message.tool_calls.map((call) => call.function.name), [message.tool_calls[0].function.name]);
    assert.deepEqual(streamed.message.tool_calls[0].function.arguments, message.tool_calls[0].function.arguments);
  });

  test(`openai: a named tool (${model})`, async () => {
    const client = await openai();
    for (const name of ['weather', 'time']) {
      const ask = { ...same, model, messages, tools, tool_choice: { type: 'function', function: { name } } };
      const { tool_calls: made } = (await client.chat.completions.create({ ...ask, parallel_tool_calls: false })).choices[0].message;
      assert.deepEqual(made.map((call) => call.function.name), [name]);
      checkCall(name, JSON.parse(made[0].function.arguments));
    }
  });
}

test('openai: calls of a free answer, streamed and not, and only one where no more are wanted', async () => {
  const client = await openai();
  const block = (city) => `<tool_call>\n{"name": "weather", "arguments": {"city": "${city}"}}\n</tool_call>`;
  const grammar = `root ::= ${JSON.stringify(`Well. ${block('Bonn')}\n${block('Rome')}`)}`;
  for (const [parallel, cities] of [[true, ['Bonn', 'Rome']], [false, ['Bonn']]]) {
    const ask = { ...same, model: 'calls', messages, tools, grammar, parallel_tool_calls: parallel };
    const whole = (await client.chat.completions.create(ask)).choices[0];
    const streamed = (await client.chat.completions.stream(ask).finalChatCompletion()).choices[0];
    for (const { message, finish_reason: reason } of [whole, streamed]) {
      assert.equal(reason, 'tool_calls');
      assert.equal(message.content, 'Well. ');
      assert.deepEqual(message.tool_calls.map((call) => JSON.parse(call.function.arguments).city), cities);
    }
  }
});

test('openai: what cannot be called is refused with the name of the field', async () => {
  const client = await openai();
  const ask = (more) => client.chat.completions.create({ ...same, model: 'tiny', messages, ...more });
  await assert.rejects(ask({ tools, tool_choice: { type: 'function', function: { name: 'gone' } } }), (error) => error.status === 400 && error.param === 'tool_choice' && /weather, time/.test(error.message));
  await assert.rejects(ask({ tool_choice: 'required' }), (error) => error.status === 400 && error.param === 'tools');
  await assert.rejects(ask({ tools, tool_choice: 'sometimes' }), (error) => error.status === 400 && error.param === 'tool_choice');
  const odd = [{ type: 'function', function: { name: 'odd', parameters: { type: 'object', not: {} } } }];
  await assert.rejects(ask({ tools: odd, tool_choice: 'required' }), (error) => error.status === 400 && error.param === 'tools' && /odd.*not/.test(error.message));
});

test('openai: a demanded call in /v1/responses', async () => {
  const client = await openai();
  const flat = tools.map((tool) => ({ type: 'function', ...tool.function }));
  const ask = { model: 'calls', input: messages[0].content, tools: flat, tool_choice: { type: 'function', name: 'weather' }, parallel_tool_calls: false, temperature: 0 };
  const whole = await client.responses.create(ask);
  assert.deepEqual(whole.output.map((item) => item.type), ['function_call']);
  checkCall(whole.output[0].name, JSON.parse(whole.output[0].arguments));
  for (const field of ['tools', 'tool_choice', 'parallel_tool_calls', 'temperature']) assert.deepEqual(whole[field], ask[field]);
  const streamed = await client.responses.stream(ask).finalResponse();
  assert.equal(streamed.output[0].arguments, whole.output[0].arguments);
});

test('ai with @ai-sdk/openai-compatible: tools, streamed and not, and objects', async () => {
  const { generateText, streamText, generateObject, jsonSchema, tool } = await import('ai');
  const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
  const model = createOpenAICompatible({ name: 'doppler', baseURL: `${server.url}/v1`, supportsStructuredOutputs: true })('calls');
  const ask = { model, messages, temperature: 0, toolChoice: { type: 'tool', toolName: 'weather' }, tools: { weather: tool({ inputSchema: jsonSchema(city) }) } };
  const whole = await generateText(ask);
  assert.equal(whole.finishReason, 'tool-calls');
  checkCall(whole.toolCalls[0].toolName, whole.toolCalls[0].input);
  const stream = streamText(ask);
  await stream.consumeStream();
  assert.deepEqual((await stream.toolCalls)[0].input, whole.toolCalls[0].input);
  const { object } = await generateObject({ model, messages, schema: jsonSchema(city), temperature: 0 });
  checkCall('weather', object);
});

test('@anthropic-ai/sdk: tool_choice any and tool, streamed and not', async () => {
  const { default: Anthropic } = await import('@anthropic-ai/sdk');
  const client = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
  const offered = tools.map((tool) => ({ name: tool.function.name, input_schema: tool.function.parameters }));
  const ask = { model: 'calls', messages, max_tokens: 200, temperature: 0, tools: offered };
  for (const choice of [{ type: 'any', disable_parallel_tool_use: true }, { type: 'tool', name: 'time', disable_parallel_tool_use: true }]) {
    const whole = await client.messages.create({ ...ask, tool_choice: choice });
    assert.equal(whole.stop_reason, 'tool_use');
    assert.deepEqual(whole.content.map((block) => block.type), ['tool_use']);
    checkCall(whole.content[0].name, whole.content[0].input);
    if (choice.name) assert.equal(whole.content[0].name, choice.name);
    const final = await client.messages.stream({ ...ask, tool_choice: choice }).finalMessage();
    assert.equal(final.stop_reason, 'tool_use');
    assert.deepEqual(final.content[0].input, whole.content[0].input);
  }
  await assert.rejects(client.messages.create({ ...ask, tool_choice: { type: 'tool', name: 'gone' } }), (error) => error instanceof Anthropic.BadRequestError);
});

test('@langchain/openai: bound tools and structured output', async () => {
  const { ChatOpenAI } = await import('@langchain/openai');
  const client = new ChatOpenAI({ model: 'calls', temperature: 0, apiKey: 'none', configuration: { baseURL: `${server.url}/v1` } });
  const bound = client.bindTools(tools, { tool_choice: 'weather' });
  const whole = await bound.invoke(messages[0].content);
  checkCall(whole.tool_calls[0].name, whole.tool_calls[0].args);
  let sum;
  for await (const chunk of await bound.stream(messages[0].content)) sum = sum ? sum.concat(chunk) : chunk;
  assert.deepEqual(sum.tool_calls[0].args, whole.tool_calls[0].args);
  for (const method of ['functionCalling', 'jsonSchema']) {
    checkCall('weather', await client.withStructuredOutput({ title: 'place', ...city }, { method }).invoke(messages[0].content));
  }
});

test('ollama: tools that are offered, and a conversation that holds calls', async () => {
  const { Ollama } = await import('ollama');
  const client = new Ollama({ host: server.url });
  const history = [...messages, { role: 'assistant', content: '', tool_calls: [{ function: { name: 'weather', arguments: { city: 'Bonn' } } }] }, { role: 'tool', content: '9 °C', tool_name: 'weather' }];
  const options = { temperature: 0, num_predict: 24 };
  const whole = await client.chat({ model: 'calls', messages: history, tools, options });
  let text = '';
  for await (const part of await client.chat({ model: 'calls', messages: history, tools, options, stream: true })) text += part.message.content;
  assert.equal(text, whole.message.content);
});

test('an answer is held only when its thoughts have ended', async () => {
  const client = await openai();
  const format = { type: 'json_schema', json_schema: { name: 'place', schema: city } };
  const ask = { ...same, model: 'thinks', messages, response_format: format };
  const thinking = (await client.chat.completions.create({ ...ask, max_tokens: 20, logit_bias: { [kThinkEnd]: -100 } })).choices[0];
  assert.equal(thinking.finish_reason, 'length');
  assert.equal(thinking.message.content, '');
  assert.doesNotMatch(thinking.message.reasoning_content, /^\s*\{/);
  const done = (await client.chat.completions.create({ ...ask, logit_bias: { [kThinkEnd]: 100 } })).choices[0];
  assert.equal(done.finish_reason, 'stop');
  assert.equal(done.message.reasoning_content, undefined);
  checkCall('weather', JSON.parse(done.message.content));
  const called = (await client.chat.completions.create({ ...ask, tools, tool_choice: 'required', logit_bias: { [kThinkEnd]: 100 } })).choices[0];
  checkCall(called.message.tool_calls[0].function.name, JSON.parse(called.message.tool_calls[0].function.arguments));
});
