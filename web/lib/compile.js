// WebAssembly modules that lie beside this file.
import {DopplerError} from './errors.js';

async function fetchModule(url) {
  let response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw new DopplerError('network', `${url} cannot be reached: ${error.message}. Check the connection and load again`);
  }
  if (!response.ok) {
    throw new DopplerError('network', `a part of the engine is missing: ${url} answers ${response.status}. Serve the whole lib folder, and load again`);
  }
  return WebAssembly.compileStreaming(response);
}

/** Answers a function that compiles the module once; after a failure the next call tries again. */
export function compiledOnce(url) {
  let compiled = null;
  return () => compiled ??= fetchModule(url).catch((error) => {
    compiled = null;
    throw error;
  });
}
