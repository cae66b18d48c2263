// One model behind the protocol. Calls that use the device run one after another; the others answer at once.
import { cancelled, makeError, toWire } from '../errors.js';
import type { CallName, Calls, FromWorker, ToWorker } from '../protocol.js';
import { breathe } from './generate.js';
import { Model } from './model.js';

const QUEUED: ReadonlySet<CallName> = new Set([
  'load',
  'run',
  'generate',
  'newSequence',
  'disposeSequence',
  'saveState',
  'restoreState',
  'reset',
  'adapterScale',
  'dispose',
]);
/** What nobody wants any more once it is aborted; the others have changed something by then. */
const RESULT_ONLY: ReadonlySet<CallName> = new Set(['run', 'saveState']);
type Handlers = {
  [K in CallName]: (
    params: Calls[K]['params'],
    signal: AbortSignal,
    event: (event: Calls[K]['event']) => void,
  ) => Promise<Calls[K]['result']> | Calls[K]['result'];
};

/** A trap inside a callback of the browser reaches nobody else: whoever waits must hear of it. */
const isTrap = (reason: unknown): boolean =>
  reason instanceof WebAssembly.RuntimeError && /etwgpu|wasm/.test(reason.stack ?? 'wasm');

export class Engine {
  private readonly controllers = new Map<number, AbortController>();
  private model: Model | undefined;
  private queue: Promise<unknown> = Promise.resolve();

  /** `own`: the global scope is this engine's alone, so that traps are nobody else's business. */
  constructor(
    private readonly post: (message: FromWorker) => void,
    private readonly own: boolean,
  ) {
    addEventListener('error', this.onError);
    addEventListener('unhandledrejection', this.onRejection);
  }

  receive(message: ToWorker): void {
    if (message.type === 'abort') {
      this.controllers.get(message.id)?.abort();
      return;
    }
    this.controllers.set(message.id, new AbortController());
    // between two calls messages are looked at, such as the abort of one that waits
    if (QUEUED.has(message.name)) this.queue = this.queue.then(breathe).then(() => this.answer(message));
    else void this.answer(message);
  }

  /** Frees the model; on a thread of the caller's nothing else does. */
  close(): void {
    removeEventListener('error', this.onError);
    removeEventListener('unhandledrejection', this.onRejection);
    for (const controller of this.controllers.values()) controller.abort();
    void this.queue.then(() => {
      this.model?.dispose();
      this.model = undefined;
    });
  }

  private readonly handlers: Handlers = {
    load: async (params, signal, event) => {
      if (params.debug.instrument) await import(/* @vite-ignore */ /* webpackIgnore: true */ params.debug.instrument);
      this.model = await Model.load(params, signal, event);
      return this.model.info;
    },
    run: ({ method, inputs, places }) => this.loaded().run(method, inputs, places),
    generate: ({ sequence, prompt, options }, signal, event) =>
      this.loaded().generate(sequence, prompt, options, signal, event),
    newSequence: () => this.loaded().newSequence(),
    disposeSequence: ({ sequence }) => {
      this.loaded().disposeSequence(sequence);
      return null;
    },
    tokenize: ({ prompt }) => this.loaded().tokenize(prompt),
    saveState: ({ sequence }) => this.loaded().saveState(sequence),
    restoreState: async ({ sequence, saved }) => {
      await this.loaded().restoreState(sequence, saved);
      return null;
    },
    reset: async ({ sequence }) => {
      await this.loaded().reset(sequence);
      return null;
    },
    adapterScale: async ({ name, scale }) => {
      await this.loaded().setAdapterScale(name, scale);
      return null;
    },
    memory: () => this.loaded().memory(),
    inspect: () => this.loaded().inspect(),
    counters: () => this.loaded().counters(),
    profile: () => this.loaded().profile(),
    loseDevice: () => {
      this.loaded().loseDevice();
      return null;
    },
    dispose: () => {
      this.model?.dispose();
      this.model = undefined;
      return null;
    },
  };

  private loaded(): Model {
    if (!this.model) throw makeError('disposed', 'no model is loaded');
    return this.model;
  }

  private async answer(message: Extract<ToWorker, { type: 'call' }>): Promise<void> {
    const { id, name } = message;
    const controller = this.controllers.get(id) ?? new AbortController();
    try {
      if (controller.signal.aborted) throw cancelled();
      const handler = this.handlers[name] as Handlers['run'];
      const result = await handler(message.params as Calls['run']['params'], controller.signal, (event) =>
        this.post({ type: 'event', id, event }),
      );
      if (controller.signal.aborted && RESULT_ONLY.has(name)) throw cancelled();
      this.post({ type: 'reply', id, result });
    } catch (error) {
      const cause = this.model ? await this.model.explain(error) : error;
      this.post({ type: 'error', id, error: toWire(cause) });
    } finally {
      this.controllers.delete(id);
    }
  }

  private readonly onError = (event: ErrorEvent) => this.trap(event, event.error);
  private readonly onRejection = (event: PromiseRejectionEvent) => this.trap(event, event.reason);
  private trap(event: Event, reason: unknown): void {
    if (!isTrap(reason)) return;
    if (this.own) event.preventDefault();
    this.model?.fail(makeError('internal', `the module failed: ${String(reason)}`));
  }
}
