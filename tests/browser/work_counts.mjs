// For the test that a page's own thread is left in peace.

/** Runs before the page's scripts: counts on its own thread what belongs in the worker. */
export function countWork() {
  window.work = { compiled: 0, hashed: 0, gpuObjects: 0, fetched: [], parsed: 0, decoded: 0 };
  const around = (object, names, note) => {
    for (const name of names) {
      const original = object?.[name];
      if (!original) continue;
      object[name] = function (...args) {
        note(...args);
        return original.apply(this, args);
      };
    }
  };
  around(
    WebAssembly,
    ['compile', 'compileStreaming', 'instantiate', 'instantiateStreaming'],
    () => window.work.compiled++,
  );
  WebAssembly.Module = new Proxy(WebAssembly.Module, {
    construct: (target, args) => (window.work.compiled++, Reflect.construct(target, args)),
  });
  around(SubtleCrypto.prototype, ['digest'], () => window.work.hashed++);
  around(window.GPUDevice?.prototype, ['createShaderModule', 'createComputePipelineAsync', 'createBuffer'], () => {
    window.work.gpuObjects++;
  });
  around(window, ['fetch'], (request) => window.work.fetched.push(String(request?.url ?? request)));
  around(JSON, ['parse'], (text) => (window.work.parsed += String(text).length));
  around(TextDecoder.prototype, ['decode'], (bytes) => (window.work.decoded += bytes?.byteLength ?? 0));
}
