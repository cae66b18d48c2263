// The worker: one model. Calls that use the device run one after another; the others answer at once.
import { cancelled, makeError, toWire, type ExecuTorchError } from '../errors.js';
import type { CallName, Calls, FromWorker, ToWorker } from '../protocol.js';
import { Model } from './model.js';

const QUEUED: ReadonlySet<CallName> = new Set(['load', 'run', 'generate', 'reset', 'dispose']);
const controllers = new Map<number, AbortController>();
let model: Model | undefined;
let queue: Promise<unknown> = Promise.resolve();

function post(message: FromWorker): void {
  self.postMessage(message);
}

function loaded(): Model {
  if (!model) throw makeError('disposed', 'no model is loaded');
  return model;
}

type Handlers = {
  [K in CallName]: (
    params: Calls[K]['params'],
    signal: AbortSignal,
    event: (event: Calls[K]['event']) => void,
  ) => Promise<Calls[K]['result']> | Calls[K]['result'];
};
const handlers: Handlers = {
  load: async (params, signal, event) => {
    if (params.debug.instrument) await import(/* @vite-ignore */ /* webpackIgnore: true */ params.debug.instrument);
    model = await Model.load(params, signal, event);
    return model.info;
  },
  run: ({ method, inputs }) => loaded().run(method, inputs),
  generate: ({ prompt, options }, signal, event) => loaded().generate(prompt, options, signal, event),
  tokenize: ({ prompt }) => loaded().tokenize(prompt),
  reset: async () => {
    await loaded().reset();
    return null;
  },
  memory: () => loaded().memory(),
  inspect: () => loaded().inspect(),
  counters: () => loaded().counters(),
  profile: () => loaded().profile(),
  loseDevice: () => {
    loaded().loseDevice();
    return null;
  },
  dispose: () => {
    model?.dispose();
    model = undefined;
    return null;
  },
};

async function answer(message: Extract<ToWorker, { type: 'call' }>): Promise<void> {
  const { id, name } = message;
  const controller = controllers.get(id) ?? new AbortController();
  try {
    if (controller.signal.aborted) throw cancelled();
    const handler = handlers[name] as Handlers['run'];
    const result = await handler(message.params as Calls['run']['params'], controller.signal, (event) =>
      post({ type: 'event', id, event }),
    );
    post({ type: 'reply', id, result });
  } catch (error) {
    post({ type: 'error', id, error: toWire(error) });
  } finally {
    controllers.delete(id);
  }
}

self.onmessage = (event: MessageEvent<ToWorker>) => {
  const message = event.data;
  if (message.type === 'abort') {
    controllers.get(message.id)?.abort();
    return;
  }
  controllers.set(message.id, new AbortController());
  if (QUEUED.has(message.name)) queue = queue.then(() => answer(message));
  else void answer(message);
};

// A trap inside a callback of the browser reaches nobody else: whoever waits must hear of it.
function broken(reason: unknown): void {
  const error: ExecuTorchError = makeError('internal', `the module failed: ${String(reason)}`);
  model?.fail(error);
}
self.addEventListener('error', (event) => {
  if (event.error instanceof WebAssembly.RuntimeError) {
    event.preventDefault();
    broken(event.error);
  }
});
self.addEventListener('unhandledrejection', (event) => {
  if (event.reason instanceof WebAssembly.RuntimeError) {
    event.preventDefault();
    broken(event.reason);
  }
});
