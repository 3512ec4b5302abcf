// The page without a network: what it is made of is kept as it is fetched. The network comes first, so that a new
// version is seen at once; a server that has lost a part is answered for from what was kept. Models are none of this worker's business; they are in the page's own storage.
const cacheName = 'doppler-page';
const parts = ['./', 'style.css', 'missing.js', 'app.js', 'chart.js', 'chat.js', 'models.js', 'settings.js', 'icon.svg', 'models.json',
  'lib/index.js', 'lib/errors.js', 'lib/host_gpu.js', 'lib/model.js', 'lib/store.js', 'lib/worker.js', 'lib/download.js',
  'lib/compile.js', 'lib/shard_hash.js', 'lib/service.js', 'lib/engine.js', 'lib/host_text.js', 'lib/stages.js', 'lib/compare.js', 'lib/doppler.wasm', 'lib/sha256.wasm', 'lib/blake3.wasm'];

self.addEventListener('install', (event) => {
  event.waitUntil(caches.open(cacheName).then((cache) => cache.addAll(parts)).then(() => self.skipWaiting()));
});
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));

self.addEventListener('fetch', (event) => {
  const url = new URL(event.request.url);
  const path = url.href.startsWith(self.registration.scope) ? url.href.slice(self.registration.scope.length) : null;
  if (event.request.method !== 'GET' || path === null || !parts.includes(path || './')) return;
  event.respondWith((async () => {
    const cache = await caches.open(cacheName);
    try {
      const response = await fetch(event.request);
      if (response.ok) await cache.put(event.request, response.clone());
      return response.ok ? response : await cache.match(event.request) ?? response;
    } catch (error) {
      const kept = await cache.match(event.request);
      if (kept) return kept;
      throw error;
    }
  })());
});
