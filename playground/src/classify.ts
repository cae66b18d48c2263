import { tensor, type Session, type Tensor } from 'executorch-webgpu';
import { element, Loader, memoryText, setUpTheme } from './common.js';

/** preprocess.json of the model folder. */
interface Preprocess {
  size: [number, number];
  crop: number;
  mean: number[];
  std: number[];
}

setUpTheme();
const loader = new Loader();
const drop = element('drop');
const file = element<HTMLInputElement>('file');
const picture = element<HTMLCanvasElement>('picture');
const results = element('results');
const SHOWN = 5;
/** Longest side of the picture on the page. */
const PREVIEW = 960;

/** The middle of the picture, scaled to the model's size. */
function toTensor(image: ImageBitmap, p: Preprocess): Tensor {
  const [height, width] = p.size;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext('2d', { willReadFrequently: true });
  if (!context) throw new Error('this browser gives no canvas');
  const side = Math.floor(Math.min(image.width, image.height) * p.crop);
  context.imageSmoothingQuality = 'high';
  context.drawImage(image, (image.width - side) >> 1, (image.height - side) >> 1, side, side, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height).data;
  const plane = width * height;
  const data = new Float32Array(3 * plane);
  for (let c = 0; c < 3; ++c) {
    for (let i = 0; i < plane; ++i)
      data[c * plane + i] = ((pixels[4 * i + c] ?? 0) - (p.mean[c] ?? 0)) / (p.std[c] ?? 1);
  }
  return tensor('f32', [1, 3, height, width], data);
}

function show(probabilities: ArrayLike<number>, labels: string[]): void {
  const order = Array.from(probabilities, (value, index) => ({ value, index }))
    .sort((a, b) => b.value - a.value)
    .slice(0, SHOWN);
  results.replaceChildren(
    ...order.map(({ value, index }) => {
      const item = document.createElement('li');
      const name = document.createElement('span');
      name.className = 'name';
      name.textContent = labels[index] ?? `class ${index}`;
      const number = document.createElement('span');
      number.className = 'value';
      number.textContent = `${(100 * value).toFixed(1)} %`;
      const track = document.createElement('div');
      track.className = 'track';
      const fill = document.createElement('i');
      fill.style.width = `${100 * value}%`;
      track.append(fill);
      item.append(name, number, track);
      return item;
    }),
  );
}

function empty(text: string): void {
  const item = document.createElement('li');
  item.className = 'empty';
  item.textContent = text;
  results.replaceChildren(item);
}

function preview(image: ImageBitmap): void {
  const scale = Math.min(1, PREVIEW / Math.max(image.width, image.height));
  picture.width = Math.round(image.width * scale);
  picture.height = Math.round(image.height * scale);
  picture.getContext('2d')?.drawImage(image, 0, 0, picture.width, picture.height);
  picture.hidden = false;
  drop.classList.add('filled');
}

let loading: Promise<Session | undefined> | undefined;
function ready(): Promise<Session | undefined> {
  if (loader.session) return Promise.resolve(loader.session);
  loading ??= loader.load().finally(() => (loading = undefined));
  return loading;
}

let last: ImageBitmap | undefined;
async function classify(image: ImageBitmap): Promise<void> {
  last = image;
  preview(image);
  empty('Looking…');
  const session = await ready();
  if (!session || last !== image) return;
  try {
    const settings = JSON.parse(session.info.files['preprocess.json'] ?? 'null') as Preprocess | null;
    if (!settings) throw new Error('the model folder has no preprocess.json');
    const began = performance.now();
    const [output] = await session.run([toTensor(image, settings)]);
    if (last !== image) return;
    element('speed').textContent = `${(performance.now() - began).toFixed(0)} ms`;
    show((output as Tensor).data as Float32Array, (session.info.files['labels.txt'] ?? '').trimEnd().split('\n'));
    element('memory').textContent = await memoryText(session);
  } catch (error) {
    empty('');
    loader.fail(error);
  }
}

async function open(blob: Blob | null | undefined): Promise<void> {
  if (!blob) return;
  let image: ImageBitmap;
  try {
    image = await createImageBitmap(blob);
  } catch {
    loader.say('This file is no picture that the browser can read.', true);
    return;
  }
  loader.say('');
  await classify(image);
}

file.addEventListener('change', () => void open(file.files?.[0]));
drop.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' || event.key === ' ') {
    event.preventDefault();
    file.click();
  }
});
for (const type of ['dragover', 'dragleave', 'drop']) {
  addEventListener(type, (event) => {
    event.preventDefault();
    drop.classList.toggle('over', type === 'dragover');
  });
}
addEventListener('drop', (event) => void open(event.dataTransfer?.files[0]));
addEventListener('paste', (event) => void open(event.clipboardData?.files[0]));
for (const picker of [loader.model, loader.device]) {
  picker.addEventListener('change', () => {
    void loader.session?.dispose();
    loader.session = undefined;
    if (last) void classify(last);
  });
}

interface Sample {
  name: string;
  url: string;
}
async function listSamples(): Promise<void> {
  const response = await fetch('./samples/index.json').catch(() => undefined);
  if (!response?.ok) return;
  for (const sample of (await response.json()) as Sample[]) {
    const button = document.createElement('button');
    button.type = 'button';
    button.title = sample.name;
    const image = new Image();
    image.src = sample.url;
    image.alt = sample.name;
    image.loading = 'lazy';
    button.append(image);
    button.addEventListener('click', () => void fetch(sample.url).then(async (r) => open(await r.blob())));
    element('samples').append(button);
  }
}

empty('Choose a picture to see what the model takes it for.');
await loader.fill('image-classification');
await listSamples();
