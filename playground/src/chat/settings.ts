// How the model answers: what the settings sheet changes and `generate` takes.
import type { GenerateOptions } from 'executorch-webgpu';
import { remembered } from '../shell/remember.js';

export interface Sampling {
  temperature: number;
  topP: number;
  topK: number;
  minP: number;
  repetitionPenalty: number;
  maxTokens: number;
  seed: number;
}

/** Small models name wrong capitals at any warmth, and go round in circles without a penalty. */
export const DEFAULTS: Sampling = {
  temperature: 0,
  topP: 0.9,
  topK: 0,
  minP: 0,
  repetitionPenalty: 1.1,
  maxTokens: 512,
  seed: 0,
};

export interface Field {
  name: keyof Sampling;
  label: string;
  help: string;
  min: number;
  max: number;
  step: number;
}

export const FIELDS: Field[] = [
  {
    name: 'temperature',
    label: 'Temperature',
    help: '0 always takes the likeliest word; higher is more varied, and wilder.',
    min: 0,
    max: 2,
    step: 0.05,
  },
  {
    name: 'maxTokens',
    label: 'Longest answer',
    help: 'In tokens, of about four letters each.',
    min: 16,
    max: 2048,
    step: 16,
  },
  {
    name: 'topP',
    label: 'Top P',
    help: 'Only the likeliest words that together have this share.',
    min: 0.05,
    max: 1,
    step: 0.05,
  },
  { name: 'topK', label: 'Top K', help: 'Only this many of the likeliest words; 0: all.', min: 0, max: 200, step: 1 },
  {
    name: 'minP',
    label: 'Min P',
    help: 'Only words at least this likely, compared with the likeliest.',
    min: 0,
    max: 0.5,
    step: 0.01,
  },
  {
    name: 'repetitionPenalty',
    label: 'Repetition penalty',
    help: 'Above 1, words that were used already become less likely.',
    min: 1,
    max: 2,
    step: 0.05,
  },
  // far below what `generate` takes: attempts are added
  { name: 'seed', label: 'Seed', help: 'The same seed gives the same answer.', min: 0, max: 2 ** 32 - 1, step: 1 },
];

/** A number that a field takes: within its bounds, and whole where its steps are. Its default for what is no number. */
export function bounded({ name, min, max, step }: Field, value: number): number {
  if (!Number.isFinite(value)) return DEFAULTS[name];
  return Math.min(max, Math.max(min, Number.isInteger(step) ? Math.round(value) : value));
}

export const sampling = remembered<Sampling>('sampling', DEFAULTS);
// what an earlier visit has kept may be out of bounds, or of another version of this page
sampling.value = FIELDS.reduce(
  (all, field) => ({ ...all, [field.name]: bounded(field, sampling.value[field.name]) }),
  DEFAULTS,
);
/** The system prompt of the next new conversation. */
export const system = remembered<string>('system prompt', '');

/** Warm enough to answer differently where the settings would give the same answer again. */
const RETRY_TEMPERATURE = 0.7;

/** `attempt`: 0 for the first answer to a message, then 1, 2, … */
export function generateOptions(attempt: number): GenerateOptions {
  const options = { ...sampling.value };
  if (attempt > 0) {
    options.seed += attempt;
    options.temperature ||= RETRY_TEMPERATURE;
  }
  return options;
}
