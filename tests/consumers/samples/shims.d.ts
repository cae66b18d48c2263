// Other packages, as far as the samples use them.
declare module 'react' {
  export function useState<T>(initial: T): [T, (value: T | ((before: T) => T)) => void];
  export function useState<T>(): [T | undefined, (value: T | undefined) => void];
  export function useEffect(effect: () => void | (() => void), inputs: unknown[]): void;
}
declare module 'vue' {
  export function shallowRef<T>(): { value: T | undefined };
  export function onScopeDispose(dispose: () => void): void;
}
