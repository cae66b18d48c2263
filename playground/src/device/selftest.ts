// The self-test: the same model with the same input on two devices must give the same result. It covers the kernels that
// these models use, on this very GPU and driver.
import { ExecuTorchRuntime, type Session } from 'executorch-webgpu';
import { ImageClassifier } from 'executorch-webgpu/tasks';
import { loadOptions, type RunOptions } from '../model/engine.js';
import type { ModelEntry, Task } from '../model/catalog.js';

export interface Outcome {
  passed: boolean;
  /** For people. */
  text: string;
  /** For bug reports. */
  detail: string;
}

/** A device under test and what it is held against, which computes in full precision on the processor. */
const REFERENCE: RunOptions = { device: 'wasm', activations: 'exact' };

/** Tokens that two devices write: enough to go through prompt, cache and sampling; few enough to wait for. */
const TOKENS = 12;
const PROMPT = 'Name the planets of the solar system.';
/** Largest difference of a probability that rounding explains. */
const TOLERANCE = 2e-3;
/** With products of 16 bit activations, as the CPU has them by default. */
const CPU_TOLERANCE = 2e-2;

/** A picture that needs no download: a red disc on a gradient, with fine lines for the high frequencies. */
export function testPicture(): OffscreenCanvas {
  const canvas = new OffscreenCanvas(320, 240);
  const context = canvas.getContext('2d');
  if (!context) throw new Error('this browser gives no canvas');
  const sky = context.createLinearGradient(0, 0, 0, 240);
  sky.addColorStop(0, '#4a7bd0');
  sky.addColorStop(1, '#e8d9a0');
  context.fillStyle = sky;
  context.fillRect(0, 0, 320, 240);
  context.fillStyle = '#c8402a';
  context.beginPath();
  context.arc(150, 120, 70, 0, 2 * Math.PI);
  context.fill();
  context.fillStyle = '#203040';
  for (let x = 0; x < 320; x += 7) context.fillRect(x, 200, 2, 40);
  return canvas;
}

async function withSession<T>(model: ModelEntry, options: RunOptions, use: (session: Session) => Promise<T>) {
  const session = await ExecuTorchRuntime.loadModel({ ...(await loadOptions(model)), ...options });
  try {
    return await use(session);
  } finally {
    await session.dispose();
  }
}

async function picture(model: ModelEntry, options: RunOptions): Promise<Outcome> {
  const look = (session: Session) => new ImageClassifier(session).classify(testPicture(), { topK: Infinity });
  const expected = await withSession(model, REFERENCE, look);
  const found = await withSession(model, options, look);
  const byClass = new Map(found.map(({ index, score }) => [index, score]));
  let worst = 0;
  for (const { index, score } of expected) {
    const difference = Math.abs(score - (byClass.get(index) ?? NaN));
    worst = difference <= worst ? worst : difference; // NaN counts as worst
  }
  const tolerance = options.device === 'webgpu' ? TOLERANCE : CPU_TOLERANCE;
  const passed = worst <= tolerance;
  return {
    passed,
    text: passed ? `the same result, “${found[0]?.label}”` : `“${found[0]?.label}” instead of “${expected[0]?.label}”`,
    detail: `largest difference of a probability ${worst ? worst.toExponential(1) : 0}, allowed ${tolerance}`,
  };
}

async function text(model: ModelEntry, options: RunOptions): Promise<Outcome> {
  const write = (session: Session) =>
    session
      .generate([{ role: 'user', content: PROMPT }], { maxTokens: TOKENS })
      .then(({ tokenIds, text }) => ({ tokenIds, text }));
  const expected = await withSession(model, REFERENCE, write);
  const found = await withSession(model, options, write);
  const first = expected.tokenIds.findIndex((id, i) => id !== found.tokenIds[i]);
  // where two words are almost equally likely, rounding decides: from there on both answers are right
  const passed = first < 0 || first >= TOKENS / 2;
  return {
    passed,
    text: first < 0 ? `the same words, “${found.text.trim()}”` : `“${found.text.trim()}” and “${expected.text.trim()}”`,
    detail: first < 0 ? `${expected.tokenIds.length} equal tokens` : `token ${first + 1} differs`,
  };
}

const TESTS: Record<Task, (model: ModelEntry, options: RunOptions) => Promise<Outcome>> = {
  'image-classification': picture,
  'text-generation': text,
};

/** @throws what loading and running throw. */
export function selfTest(model: ModelEntry, options: RunOptions): Promise<Outcome> {
  return TESTS[model.task](model, options);
}
