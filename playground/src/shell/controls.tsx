// Small controls that several pages use.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Icon, type IconName } from './icons.js';

/** The whole page takes what is dropped on it; `onDrop` stays the first one. Returns whether something is held over it. */
export function useDrop(onDrop: (transfer: DataTransfer | null) => void): boolean {
  const [over, setOver] = useState(false);
  useEffect(() => {
    const onDrag = (event: DragEvent) => {
      event.preventDefault();
      setOver(event.type === 'dragover');
      if (event.type === 'drop') onDrop(event.dataTransfer);
    };
    const types = ['dragover', 'dragleave', 'drop'] as const;
    for (const type of types) addEventListener(type, onDrag);
    return () => types.forEach((type) => removeEventListener(type, onDrag));
  }, []);
  return over;
}

interface IconButtonProps {
  icon: IconName;
  /** What it does, in words: for screen readers and as a tooltip. */
  label: string;
  onClick: () => void;
  disabled?: boolean;
  class?: string;
  pressed?: boolean;
}
export function IconButton({ icon, label, onClick, disabled, class: extra = '', pressed }: IconButtonProps) {
  return (
    <button
      type="button"
      class={`icon-button ${extra}`}
      aria-label={label}
      title={label}
      disabled={disabled}
      aria-pressed={pressed}
      onClick={onClick}
    >
      <Icon name={icon} />
    </button>
  );
}

/** Copies a text and says so for a moment. */
export function CopyButton({ text, label }: { text: () => string; label: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = () => void navigator.clipboard.writeText(text()).then(() => setCopied(true));
  return <IconButton icon={copied ? 'check' : 'copy'} label={copied ? 'Copied' : label} onClick={copy} />;
}

interface DialogProps {
  title: string;
  open: boolean;
  onClose: () => void;
  /** `side`: a sheet at the edge of the window. */
  kind?: 'centre' | 'side' | 'left';
  children: ComponentChildren;
}
/** A modal dialog: the browser keeps the focus inside and closes it with Esc. */
export function Dialog({ title, open, onClose, kind = 'centre', children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open && !dialog.current?.open) dialog.current?.showModal();
    if (!open && dialog.current?.open) dialog.current.close();
  }, [open]);
  return (
    <dialog
      ref={dialog}
      class={`dialog ${kind}`}
      aria-label={title}
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      {open && (
        <div class="dialog-box">
          <header>
            <h2>{title}</h2>
            <IconButton icon="close" label="Close" onClick={onClose} />
          </header>
          {children}
        </div>
      )}
    </dialog>
  );
}

interface ProgressProps {
  label: string;
  /** 0 to 1; undefined while nobody knows. */
  value: number | undefined;
}
export function ProgressBar({ label, value }: ProgressProps) {
  const percent = value === undefined ? undefined : Math.round(100 * value);
  return (
    <div
      class={`track ${percent === undefined ? 'busy' : ''}`}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={percent}
    >
      <i style={percent === undefined ? {} : { width: `${100 * (value ?? 0)}%` }} />
    </div>
  );
}

/** Offers text as a file. */
export function saveFile(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
