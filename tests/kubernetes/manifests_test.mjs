// deploy/kubernetes against the schemas of Kubernetes and of the Prometheus operator, and against the program: a container
// is started as it is written there, its probes are asked, and every metric that somebody counts on is one that it has.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { build, root } from '../serve/support.mjs';

const load = path => import(pathToFileURL(join(build, 'kubernetes/node_modules', path)));
const yaml = await load('yaml/dist/index.js');
const text = name => readFileSync(join(root, 'deploy/kubernetes', name), 'utf8');
const documents = name => yaml.parseAllDocuments(text(name), { strict: true, uniqueKeys: true }).map(document => {
  assert.deepEqual([...document.errors, ...document.warnings], []);
  return document.toJS();
});

const SCHEMAS = {
  'apps/v1 Deployment': 'kubernetes-models/_schemas/IoK8sApiAppsV1Deployment.js',
  'v1 Service': 'kubernetes-models/_schemas/IoK8sApiCoreV1Service.js',
  'policy/v1 PodDisruptionBudget': 'kubernetes-models/_schemas/IoK8sApiPolicyV1PodDisruptionBudget.js',
  'autoscaling/v2 HorizontalPodAutoscaler': 'kubernetes-models/_schemas/IoK8sApiAutoscalingV2HorizontalPodAutoscaler.js',
  'monitoring.coreos.com/v1 PodMonitor': '@kubernetes-models/prometheus-operator/_schemas/' +
    'ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1PodMonitor.js',
};

// What is wrong with an object, in words. The schemas say nothing of names that they do not have: those are the ones that
// their compiled form never reads.
async function faults(object) {
  const kind = `${object.apiVersion} ${object.kind}`;
  if (!SCHEMAS[kind]) return [`${kind} is no object that this test knows`];
  const { validate } = await load(SCHEMAS[kind]);
  const unread = new Set();
  const watched = (value, path) => {
    if (value === null || typeof value !== 'object') return value;
    const names = new Map(Object.keys(value).map(name => [name, watched(value[name], `${path}/${name}`)]));
    if (!Array.isArray(value)) for (const name of names.keys()) unread.add(`${path}/${name}`);
    return new Proxy(value, {
      get(target, name) {
        unread.delete(`${path}/${String(name)}`);
        return names.has(name) ? names.get(name) : target[name];
      },
    });
  };
  const list = [];
  if (!validate(watched(object, ''))) {
    for (const error of validate.errors) list.push(`${error.instancePath} ${error.keyword} ${JSON.stringify(error.params)}`);
  }
  for (const path of unread) list.push(`${path} is no name that it has`);
  return list;
}

const objects = documents('doppler.yaml');
const find = kind => objects.find(object => object.kind === kind);

test('every object is one', async () => {
  assert.deepEqual(objects.map(object => object.kind).sort(),
    ['Deployment', 'HorizontalPodAutoscaler', 'PodDisruptionBudget', 'PodMonitor', 'Service']);
  for (const object of objects) assert.deepEqual(await faults(object), [], object.kind);
});

test('the schemas see what is wrong', async () => {
  const broken = change => {
    const copy = structuredClone(find('Deployment'));
    change(copy.spec.template.spec.containers[0], copy);
    return faults(copy);
  };
  assert.match((await broken(c => { c.readinessProb = c.readinessProbe; })).join(), /readinessProb is no name/);
  assert.match((await broken(c => { c.readinessProbe.httpGet.prot = 1; })).join(), /httpGet\/prot is no name/);
  assert.match((await broken(c => { c.env[0].valu = 'x'; })).join(), /env\/0\/valu is no name/);
  assert.match((await broken(c => { c.readinessProbe.periodSeconds = '1s'; })).join(), /periodSeconds type/);
  assert.match((await broken(c => { delete c.name; })).join(), /required.*name/);
  assert.match((await broken((c, d) => { delete d.spec.selector; })).join(), /required.*selector/);
});

test('the objects mean each other', () => {
  const pod = find('Deployment').spec.template, container = pod.spec.containers[0];
  const ports = container.ports.map(port => port.name);
  const selects = labels => Object.entries(labels).every(([name, value]) => pod.metadata.labels[name] === value);
  assert(selects(find('Deployment').spec.selector.matchLabels));
  assert(selects(find('Service').spec.selector));
  assert(selects(find('PodDisruptionBudget').spec.selector.matchLabels));
  assert(selects(find('PodMonitor').spec.selector.matchLabels));
  for (const probe of ['livenessProbe', 'readinessProbe', 'startupProbe']) assert(ports.includes(container[probe].httpGet.port));
  assert(ports.includes(find('Service').spec.ports[0].targetPort));
  assert(ports.includes(find('PodMonitor').spec.podMetricsEndpoints[0].port));
  assert.equal(find('HorizontalPodAutoscaler').spec.scaleTargetRef.name, find('Deployment').metadata.name);
  const volumes = pod.spec.volumes.map(volume => volume.name);
  for (const mount of container.volumeMounts) assert(volumes.includes(mount.name), mount.name);
  const drain = 30, pause = Number(container.lifecycle.preStop.exec.command[1]);
  assert(pod.spec.terminationGracePeriodSeconds > drain + pause);
  const [values] = documents('inference-gateway.yaml');
  assert(selects(values.inferencePool.modelServers.matchLabels));
  assert.equal(values.inferencePool.targetPorts[0].number, container.ports[0].containerPort);
});

test('a container does what is said of it', async t => {
  const container = find('Deployment').spec.template.spec.containers[0];
  const port = String(container.ports[0].containerPort);
  assert.equal(container.args[container.args.indexOf('--port') + 1], port);
  const dockerfile = readFileSync(join(root, 'packaging/Dockerfile'), 'utf8');
  const begin = JSON.parse(/^ENTRYPOINT (\[.*\])$/m.exec(dockerfile)[1]);
  assert.deepEqual(begin.slice(0, 2), ['build/doppler', 'serve']);
  const folder = mkdtempSync(join(tmpdir(), 'doppler-kubernetes-'));
  writeFileSync(join(folder, 'keys'), 'one\ntwo\n');
  // Elsewhere than in a pod: another port, nobody else's address, one thread, and the Secret's file.
  const here = { '8080': '0', '0.0.0.0': '127.0.0.1', '4': '1', '/keys/keys': join(folder, 'keys') };
  const options = [...begin.slice(2), ...container.args].map(word => here[word] ?? word);
  for (const word of Object.keys(here)) assert(![...options].includes(word) && [...begin, ...container.args].includes(word), word);
  const child = spawn(join(build, 'doppler'), ['serve', ...options, '--backend', 'cpu'], { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  child.stderr.on('data', text => { said += text; });
  t.after(() => {
    child.kill('SIGKILL');
    rmSync(folder, { recursive: true });
  });
  const server = {
    key: 'two',
    url: await new Promise((resolve, reject) => {
      child.stdout.once('data', text => resolve(String(text).trim()));
      child.on('exit', code => reject(new Error(`doppler serve ended with ${code}: ${said}`)));
    }),
  };
  for (const probe of ['livenessProbe', 'readinessProbe', 'startupProbe']) {
    const answer = await fetch(`${server.url}${container[probe].httpGet.path}`);
    assert.equal(answer.status, 200, probe);
  }
  const [endpoint] = find('PodMonitor').spec.podMetricsEndpoints;
  assert.equal((await fetch(`${server.url}${endpoint.path}`)).status, 401);
  const metrics = await (await fetch(`${server.url}${endpoint.path}`, { headers: { authorization: `Bearer ${server.key}` } })).text();
  const [values] = documents('inference-gateway.yaml');
  const wanted = [
    ...find('HorizontalPodAutoscaler').spec.metrics.map(metric => metric.pods.metric.name),
    ...Object.values(values.inferenceExtension.flags).filter(name => name),
  ];
  assert.equal(wanted.length, 6);
  for (const name of wanted) assert.match(metrics, new RegExp(`^# TYPE ${name} gauge$`, 'm'));
  assert.match(metrics, /^doppler_cache_config_info\{block_size="\d+",num_gpu_blocks="\d+"\} 1$/m);
});
