// The settings sheet: system prompt and sampling.
import { Dialog } from '../shell/controls.js';
import { change, current } from './conversations.js';
import { bounded, DEFAULTS, FIELDS, sampling, system, type Field } from './settings.js';

function SamplingField({ field }: { field: Field }) {
  const { name, label, help, min, max, step } = field;
  const value = sampling.value[name];
  // an emptied field is no 0
  const set = (text: string) => (sampling.value = { ...sampling.value, [name]: bounded(field, parseFloat(text)) });
  return (
    <div class="setting">
      <label for={`setting-${name}`}>{label}</label>
      <input
        id={`setting-${name}`}
        type="number"
        inputMode={Number.isInteger(step) ? 'numeric' : 'decimal'}
        min={min}
        max={max}
        step={step}
        value={value}
        onChange={(e) => set(e.currentTarget.value)}
      />
      {/* where one number is as good as another there is nothing to slide to */}
      {name !== 'seed' && (
        <input
          type="range"
          aria-label={label}
          aria-describedby={`help-${name}`}
          min={min}
          max={max}
          step={step}
          value={value}
          onInput={(e) => set(e.currentTarget.value)}
        />
      )}
      <p id={`help-${name}`}>{help}</p>
    </div>
  );
}

/** Of this conversation, and of those that begin later. */
function setSystem(text: string): void {
  system.value = text;
  const conversation = current.value;
  if (conversation) change(conversation.id, { system: text });
}

export function SettingsSheet({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Dialog title="How it answers" open={open} onClose={onClose} kind="side">
      <div class="settings">
        <div class="setting">
          <label for="setting-system">System prompt</label>
          <textarea
            id="setting-system"
            rows={4}
            dir="auto"
            placeholder="For example: Answer in one short sentence."
            value={current.value?.system ?? system.value}
            onInput={(e) => setSystem(e.currentTarget.value)}
          />
          <p>What the model is told before the conversation. Empty: the model’s own.</p>
        </div>
        {FIELDS.map((field) => (
          <SamplingField key={field.name} field={field} />
        ))}
        <button type="button" onClick={() => (sampling.value = DEFAULTS)}>
          Back to the defaults
        </button>
      </div>
    </Dialog>
  );
}
