// The benchmark: how fast this device is with a model, as numbers that can be shared.
import { ExecuTorchRuntime, type Session } from 'executorch-webgpu';
import { ImageClassifier } from 'executorch-webgpu/tasks';
import type { ModelEntry } from '../model/catalog.js';
import { loadOptions, type RunOptions } from '../model/engine.js';
import { testPicture } from './selftest.js';

export interface Report {
  format: 1;
  model: string;
  date: string;
  browser: string;
  device: string;
  adapter: unknown;
  threads: number;
  loadMs: number;
  memoryBytes: number;
  /** Tokens a second. */
  prompt?: { tokens: number; tokensPerSecond: number };
  answer?: { tokens: number; tokensPerSecond: number };
  /** Median and all, in milliseconds. */
  picture?: { ms: number; all: number[] };
}

const ROUNDS = 7;
const SENTENCE = 'The harbour lay quiet in the morning light while the boats waited for the tide. ';

export interface Amount {
  /** Sentences of 17 tokens or so. */
  sentences: number;
  tokens: number;
}
export const FULL: Amount = { sentences: 14, tokens: 64 };

const perSecond = (count: number, ms: number) => Number(((1000 * count) / ms).toFixed(2));

async function textNumbers(
  session: Session,
  { sentences, tokens }: Amount,
): Promise<Pick<Report, 'prompt' | 'answer'>> {
  // the first run is not counted: it compiles what is compiled lazily
  await session.generate('Once upon a time', { maxTokens: 2 });
  await session.reset();
  const { timings } = await session.generate(SENTENCE.repeat(sentences), { maxTokens: tokens });
  return {
    prompt: { tokens: timings.promptTokens, tokensPerSecond: perSecond(timings.promptTokens, timings.prefillMs) },
    answer: { tokens: timings.decodeTokens, tokensPerSecond: perSecond(timings.decodeTokens, timings.decodeMs) },
  };
}

async function pictureNumbers(session: Session): Promise<Pick<Report, 'picture'>> {
  const classifier = new ImageClassifier(session);
  const all: number[] = [];
  for (let i = 0; i <= ROUNDS; ++i) {
    const began = performance.now();
    await classifier.classify(testPicture());
    if (i > 0) all.push(Number((performance.now() - began).toFixed(2)));
  }
  const ms = [...all].sort((a, b) => a - b)[all.length >> 1] ?? 0;
  return { picture: { ms, all } };
}

/** @throws what loading and running throw. */
export async function benchmark(model: ModelEntry, options: RunOptions, amount: Amount = FULL): Promise<Report> {
  const session = await ExecuTorchRuntime.loadModel({ ...(await loadOptions(model)), ...options });
  try {
    const numbers = session.info.canGenerate ? await textNumbers(session, amount) : await pictureNumbers(session);
    const memory = await session.memoryReport();
    const onGpu = memory.weights + memory.state + memory.arena + memory.other;
    return {
      format: 1,
      model: model.name,
      date: new Date().toISOString(),
      browser: navigator.userAgent,
      device: session.device,
      adapter: session.info.adapter ?? null,
      threads: session.info.threads,
      loadMs: Math.round(session.info.loadMs),
      memoryBytes: session.device === 'webgpu' ? onGpu : memory.wasmHeap,
      ...numbers,
    };
  } finally {
    await session.dispose();
  }
}
