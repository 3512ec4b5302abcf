// Every error of the library: `code` says what kind it is, the message is a sentence for a person.

const kinds = {2: 'usage', 3: 'file', 4: 'format', 5: 'unsupported', 6: 'memory', 7: 'device', 70: 'internal'};

export class DopplerError extends Error {
  /**
   * @param {string} code usage, file, format, unsupported, memory, device, internal, network, quota, cancelled
   * @param {string} message
   */
  constructor(code, message) {
    super(message);
    this.name = 'DopplerError';
    this.code = code;
  }

  static fromEngine(number, message) {
    return new DopplerError(kinds[number] ?? 'internal', message);
  }

  // Errors cross from the worker as plain data.
  static pack(error) {
    if (error instanceof DopplerError) return {code: error.code, message: error.message};
    if (error?.name === 'AbortError') return {code: 'cancelled', message: 'cancelled'};
    if (error?.name === 'QuotaExceededError') return {code: 'quota', message: 'the browser has no room left for the model. Delete stored models, or free disk space'};
    if (error instanceof WebAssembly.RuntimeError) {
      return {code: 'internal', message: `the engine stopped: ${error.message}. Reload the model; if it happens again, it is a bug of Doppler`};
    }
    return {code: 'internal', message: String(error?.message ?? error)};
  }

  static unpack(plain) {
    return new DopplerError(plain.code, plain.message);
  }
}
