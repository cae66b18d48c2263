export { ExecuTorchRuntime } from './runtime.js';
export { Sequence } from './sequence.js';
export { Session, type GpuRunOptions, type RunOptions } from './session.js';
export { type ImageInput, type ImageSource, type Input } from './image.js';
export type { CachedModelInfo, CacheUsage } from './cache.js';
export { Generation } from './generation.js';
export {
  tensor,
  toNumbers,
  type DType,
  type GpuTensor,
  type OutputPlace,
  type Tensor,
  type TensorData,
  type Value,
} from './tensor.js';
export * from './errors.js';
export type {
  AdapterOptions,
  CacheInfo,
  CallOptions,
  Capabilities,
  ChatMessage,
  Counters,
  DebugOptions,
  DeviceName,
  GeneratedToken,
  GenerateOptions,
  GenerateResult,
  GpuTier,
  KernelTime,
  LoadOptions,
  Manifest,
  ManifestFile,
  ManifestVariant,
  MemoryReport,
  MethodInfo,
  ModelSource,
  Path,
  Precision,
  Progress,
  Prompt,
  PromptMessage,
  ResponseFormat,
  SessionInfo,
  SpeculationCounts,
  TuningInfo,
  WasmTier,
} from './types.js';
export { splitThinking } from './thinking.js';
