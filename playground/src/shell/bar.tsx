// The right end of the header: what is promised, and the theme. The rest of the header is static HTML.
import { signal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { Dialog, IconButton } from './controls.js';
import { Icon } from './icons.js';
import { offlineReady, update } from './offline.js';

const system = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? 'dark' : 'light')) === 'dark';
const dark = signal(isDark());
system.addEventListener('change', () => (dark.value = isDark()));

/** Back to the system's own theme where that is what was chosen: it then follows the system again. */
function toggleTheme(): void {
  const theme = dark.value ? 'light' : 'dark';
  const same = (theme === 'dark') === system.matches;
  if (same) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (same) localStorage.removeItem('theme');
    else localStorage.setItem('theme', theme);
  } catch {
    // it holds until the page is closed
  }
  dark.value = theme === 'dark';
}

export function BarEnd() {
  const [open, setOpen] = useState(false);
  return (
    <>
      {update.value && (
        <button type="button" class="small" onClick={update.value}>
          Update
        </button>
      )}
      <button type="button" class="promise" onClick={() => setOpen(true)}>
        <Icon name="lock" />
        <span>Nothing is sent</span>
      </button>
      <IconButton
        icon={dark.value ? 'sun' : 'moon'}
        label={dark.value ? 'Use the light theme' : 'Use the dark theme'}
        onClick={toggleTheme}
      />
      <Dialog title="Nothing is sent" open={open} onClose={() => setOpen(false)}>
        <p>
          The models compute here, in this tab. What you write, your pictures and your camera stay on this device; there
          is no server that could receive them, no account and no counting of visitors.
        </p>
        <p>
          Two things are downloaded: the page itself and the files of a model that you choose. The page’s security
          policy makes the browser refuse every other address.
        </p>
        <p>
          Conversations are kept in this browser until you delete them.{' '}
          {offlineReady.value && 'The page works without a network, with the models that are on this device.'}
        </p>
      </Dialog>
    </>
  );
}
