// The JavaScript engine's own validation of what `doppler convert` writes, and what we make of every key of its schema.
import assert from 'node:assert/strict';
import {mkdirSync, readFileSync, symlinkSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {test} from 'node:test';
import {checkout, checkpoints, doppler, readManifest, root, scratch, theirs} from './support.mjs';

const {validateManifest} = await theirs('src/formats/rdrr/validation.js');
const {parseManifest, parseTensorMap} = await theirs('src/formats/rdrr/parsing.js');
const {parseModelConfigFromManifest} = await theirs('src/inference/pipelines/text/config.js');
const {DEFAULT_MANIFEST_INFERENCE} = await theirs('src/config/schema/manifest.schema.js');
const {KERNEL_REF_CONTENT_DIGESTS} = await theirs('src/config/kernels/kernel-ref-digests.js');

const folder = scratch();

// Families that its engine has no chat template for, or no numbers: its validator accepts them, its engine says no.
const elsewhere = /is not a known formatter type|Unsupported RoPE scaling type/;

function accept(name, artefact) {
  const manifest = readManifest(artefact);
  const {valid, errors} = validateManifest(manifest);
  assert.deepEqual(errors, [], name);
  assert.ok(valid, name);
  parseManifest(JSON.stringify(manifest));
  parseTensorMap(JSON.stringify(manifest.tensors));
  try {
    parseModelConfigFromManifest(manifest);
  } catch (error) {
    assert.match(error.message, elsewhere, name);
  }
}

test('artefacts of every checkpoint are accepted', async (t) => {
  for (const name of checkpoints()) {
    await t.test(name, () => {
      const target = join(folder, name);
      doppler('convert', join(root, 'tests/data/models', name), target, '--no-tokenizer');
      accept(name, target);
    });
  }
});

test('the model that ships is accepted', () => accept('tiny', join(root, 'models/tiny')));

test('a manifest that says something else than its tensors is not accepted', () => {
  const manifest = readManifest(join(root, 'models/tiny'));
  manifest.inference.normalization.postFeedforwardNorm = false;
  assert.match(validateManifest(manifest).errors.join(), /POSTFEEDFORWARDNORM/);
});

test('the graph names kernels that are there', (t) => {
  const {kernels} = readManifest(join(root, 'models/tiny')).inference.execution;
  for (const {kernel, entry, digest} of Object.values(kernels)) {
    const known = KERNEL_REF_CONTENT_DIGESTS[`${kernel}#${entry}`];
    assert.ok(known, `${kernel}#${entry}`);
    if (digest !== `sha256:${known}`) t.diagnostic(`${kernel}#${entry} has changed since its digest was taken`);
  }
});

test('doppler verify takes the hashes that it writes', async () => {
  const {computeHash} = await theirs('src/storage/shard-manager.js');
  const artefact = join(folder, 'hashed'), shard = readFileSync(join(root, 'models/tiny/shard_00000.bin'));
  mkdirSync(artefact);
  for (const file of ['shard_00000.bin', 'tokenizer.json']) symlinkSync(join(root, 'models/tiny', file), join(artefact, file));
  const verify = (bytes) => computeHash(bytes, 'blake3').then((digest) => {
    const manifest = readManifest(join(root, 'models/tiny'));
    manifest.hashAlgorithm = 'blake3';
    manifest.shards[0].hash = typeof digest === 'string' ? digest : Buffer.from(digest).toString('hex');
    writeFileSync(join(artefact, 'manifest.json'), JSON.stringify(manifest));
    return doppler('verify', artefact);
  });
  await verify(shard);
  const other = Buffer.from(shard);
  other[1234] ^= 1;
  await assert.rejects(verify(other), ({stdout}) => /another blake3/.test(stdout));
});

// What they do with a model's answers, or with their own machine, is not ours to refuse.
const theirBusiness = new Set(['schema', 'session', 'execution', 'rerank', 'supportsEmbedding', 'supportsSequence', 'supportsRerank',
  'supportsTranscription', 'supportsVision', 'chatTemplate.type', 'chatTemplate.enabled', 'rope.mropeInterleaved']);

test('every key of its schema is read or refused by its name', () => {
  const artefact = join(folder, 'keys');
  mkdirSync(artefact);
  for (const file of ['shard_00000.bin', 'tokenizer.json']) symlinkSync(join(root, 'models/tiny', file), join(artefact, file));
  const attempt = (path, value) => {
    const manifest = readManifest(join(root, 'models/tiny'));
    const keys = path.split('.');
    keys.slice(0, -1).reduce((at, key) => at[key] ??= {}, manifest.inference)[keys.at(-1)] = value;
    writeFileSync(join(artefact, 'manifest.json'), JSON.stringify(manifest));
    try {
      doppler('inspect', artefact);
      return '';
    } catch (error) {
      return error.stderr;
    }
  };
  const walk = (object, path = '') => Object.entries(object).flatMap(([key, value]) => value && typeof value === 'object' && !Array.isArray(value)
    ? walk(value, `${path}${key}.`) : [`${path}${key}`]);
  const keys = walk(DEFAULT_MANIFEST_INFERENCE);
  assert.ok(keys.length > 60, `${checkout} has a schema of ${keys.length} keys`);
  for (const key of [...keys, 'attention.madeUpYesterday', 'madeUpYesterday']) {
    if (theirBusiness.has(key)) continue;
    // Of the wrong kind and far from neutral, whatever the key: nothing may be made of it.
    const said = attempt(key, ['semaphore']);
    if (said.includes(key.split('.').at(-1))) continue;
    // Keys of another kind of pattern or of a scaling that this model does not have say nothing.
    assert.ok(/^(layerPattern\.(globalPattern|layerTypes)|rope\.(yarn|longrope|ropeLocalYarn))/.test(key) && said === '', `${key}: ${said || 'was read over'}`);
  }
});
