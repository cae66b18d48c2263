// The WebAssembly module as JavaScript sees it.

/** What Emscripten's module object has, as far as it is used here. Export names are those of api.cpp. */
export interface Exports {
  wasmMemory: WebAssembly.Memory;
  HEAPU8: Uint8Array;
  /** Of Emscripten; in modules with threads. */
  PThread: { unusedWorkers: Worker[]; loadWasmModuleToWorker(worker: Worker): Promise<Worker> };
  etwgpuBuffer(handle: number): GPUBuffer;
  etwgpuImportDevice(device: GPUDevice): number;
  etwgpuImportBuffer(buffer: GPUBuffer): number;
  etwgpuRelease(handle: number): void;
  _malloc(bytes: number): number;
  _free(pointer: number): void;
  _etwgpu_build_id(): number;
  _etwgpu_source_done(token: number, code: number, message: number, length: number): void;
  _etwgpu_device_create(
    request: number,
    existing: number,
    defaultLimits: number,
    noF16: number,
    noSubgroups: number,
  ): void;
  _etwgpu_device_destroy(): void;
  _etwgpu_device_free(): number;
  _etwgpu_adapter_add(
    name: number,
    nameLength: number,
    source: number,
    size: number,
    config: number,
    configLength: number,
    scale: number,
  ): void;
  _etwgpu_session_set_adapter_scale(
    request: number,
    session: number,
    name: number,
    nameLength: number,
    scale: number,
  ): void;
  _etwgpu_session_load(
    request: number,
    source: number,
    name: number,
    nameLength: number,
    size: number,
    dataSource: number,
    device: number,
    precision: number,
    activations: number,
    threads: number,
    maxTier: number,
    memoryCap: number,
    checkValues: number,
    passes: number,
    passesLength: number,
    tuning: number,
    tuningLength: number,
  ): void;
  _etwgpu_session_tune(request: number, session: number, method: number, methodLength: number, budgetMs: number): void;
  _etwgpu_session_free(session: number): number;
  _etwgpu_sequence_create(request: number, session: number): void;
  _etwgpu_session_run(
    request: number,
    session: number,
    method: number,
    methodLength: number,
    inputs: number,
    inputsLength: number,
  ): void;
  _etwgpu_session_reset(request: number, session: number): void;
  _etwgpu_session_inspect(session: number): number;
  _etwgpu_session_methods(session: number): number;
  _etwgpu_session_memory(session: number): number;
  _etwgpu_session_stats(session: number): number;
  _etwgpu_session_set_profile(session: number, on: number): number;
  _etwgpu_session_profile(session: number): number;
  _etwgpu_generator_create(request: number, session: number, method: number, methodLength: number): void;
  _etwgpu_generator_generate(
    request: number,
    session: number,
    ids: number,
    count: number,
    stops: number,
    stopCount: number,
    maxTokens: number,
    temperature: number,
    topK: number,
    topP: number,
    minP: number,
    penalty: number,
    seed: number,
    logprobs: number,
    chunk: number,
    masked: number,
    sliding: number,
    sinks: number,
    keep: number,
    draftTokens: number,
    draftNgram: number,
  ): void;
  _etwgpu_generator_abort(session: number): void;
  _etwgpu_resume(token: number): void;
  _etwgpu_generator_position(session: number): number;
  _etwgpu_generator_save(request: number, session: number): void;
  _etwgpu_generator_restore(request: number, session: number, source: number, size: number): void;
}

export interface ModuleOptions {
  etwgpuHost: Host;
  mainScriptUrlOrBlob: string;
  instantiateWasm(
    imports: WebAssembly.Imports,
    receive: (instance: WebAssembly.Instance, module: WebAssembly.Module) => void,
  ): object;
  print(text: string): void;
  printErr(text: string): void;
  onAbort(reason: unknown): void;
}
/** Called by host_library.js. */
export interface Host {
  complete(
    request: number,
    code: number,
    message: number,
    messageLength: number,
    payload: number,
    payloadLength: number,
  ): void;
  readSource(source: number, requests: number, count: number, token: number): void;
  token(request: number, token: number, reason: number, logprob: number): boolean;
  mask(request: number, words: number, count: number, token: number): void;
  pause(token: number): void;
  piece(request: number, bytes: number, length: number): void;
  /** A pointer to what encodeJson() has made, or 0. */
  parseJson(text: number, length: number): number;
  /** Called by webgpu_library.js, of an adapter's info. */
  isSoftware(info: Partial<GPUAdapterInfo>): boolean;
}
