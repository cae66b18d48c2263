// The picture or camera on the page, and what the model says of it.
import { signal } from '@preact/signals';
import { ImageClassifier, type Classification } from 'executorch-webgpu/tasks';
import { engines } from '../model/engine.js';
import { explain, type Problem } from '../model/problem.js';

export const engine = engines['image-classification'];

export interface Result {
  guesses: Classification[];
  ms: number;
}
export const picture = signal<ImageBitmap | undefined>(undefined);
export const result = signal<Result | undefined>(undefined);
export const looking = signal(false);
export const problem = signal<Problem | undefined>(undefined);
export const stream = signal<MediaStream | undefined>(undefined);
/** The browser is asked for the camera, and perhaps asks its user. */
export const cameraAwaited = signal(false);

const say = (what: string, remedy: string, error: unknown): void => {
  problem.value = { ...explain(error), what, remedy };
};

/** Asks the model, loading it first if need be. The answer to a picture that was replaced meanwhile is dropped. */
async function look(image: ImageBitmap | HTMLVideoElement, stillWanted: () => boolean): Promise<void> {
  const session = await engine.ready();
  if (!session || !stillWanted()) return;
  const began = performance.now();
  const guesses = await new ImageClassifier(session).classify(image);
  if (stillWanted()) result.value = { guesses, ms: performance.now() - began };
}

export async function show(image: ImageBitmap): Promise<void> {
  stopCamera();
  picture.value = image;
  result.value = undefined;
  problem.value = undefined;
  looking.value = true;
  try {
    await look(image, () => picture.value === image);
  } catch (error) {
    problem.value = engine.fail(error);
  } finally {
    looking.value = false;
  }
}

/** A file that was chosen, dropped or pasted. */
export async function open(blob: Blob | null | undefined): Promise<void> {
  if (!blob) return;
  let image: ImageBitmap;
  try {
    image = await createImageBitmap(blob);
  } catch (error) {
    say('This file is no picture that the browser can read.', 'Try a JPEG or PNG.', error);
    return;
  }
  await show(image);
}

export function stopCamera(): void {
  for (const track of stream.value?.getTracks() ?? []) track.stop();
  stream.value = undefined;
}

export async function startCamera(): Promise<void> {
  problem.value = undefined;
  cameraAwaited.value = true;
  try {
    const video = { facingMode: 'environment', width: { ideal: 640 } };
    stream.value = await navigator.mediaDevices.getUserMedia({ video, audio: false });
    picture.value = result.value = undefined;
  } catch (error) {
    const refused = error instanceof DOMException && error.name === 'NotAllowedError';
    if (refused) say('The browser did not allow the camera.', 'Allow it beside the address, then try again.', error);
    else say('No camera could be opened.', 'Is one there, and is no other program using it?', error);
  } finally {
    cameraAwaited.value = false;
  }
}

/** Looks at one frame after the other as long as this stream is on the page. */
export async function watch(video: HTMLVideoElement, own: MediaStream): Promise<void> {
  const on = () => stream.value === own;
  try {
    while (on()) {
      if (video.readyState >= HTMLMediaElement.HAVE_CURRENT_DATA) await look(video, on);
      if (engine.state.value.kind === 'failed') return;
      await new Promise(requestAnimationFrame);
    }
  } catch (error) {
    problem.value = engine.fail(error);
    stopCamera();
  }
}

export interface Sample {
  name: string;
  url: string;
}
/** Undefined until the host has said which there are. */
export const samples = signal<Sample[] | undefined>(undefined);
let asked = false;

/** samples/index.json beside the page, if there is one. */
export async function loadSamples(): Promise<void> {
  if (asked) return;
  asked = true;
  const response = await fetch('./samples/index.json').catch(() => undefined);
  const list: unknown = response?.ok ? await response.json().catch(() => undefined) : undefined;
  samples.value = Array.isArray(list) ? (list as Sample[]) : [];
}
