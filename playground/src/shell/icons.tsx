// Line icons on a grid of 24.
const PATHS = {
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2v2M12 20v2M2 12h2M20 12h2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4',
  moon: 'M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5Z',
  send: 'M12 19V5M5.5 11.5 12 5l6.5 6.5',
  stop: 'M8 8h8v8H8Z',
  copy: 'M9 9h10v11H9ZM5 15V4h10',
  check: 'm5 12.5 4.5 4.5L19 7.5',
  retry: 'M4 12a8 8 0 1 1 2.5 5.8M4 19v-5h5',
  edit: 'M4 20h4L19 9l-4-4L4 16ZM13 7l4 4',
  trash: 'M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5',
  plus: 'M12 5v14M5 12h14',
  menu: 'M4 7h16M4 12h16M4 17h16',
  close: 'M6 6l12 12M18 6 6 18',
  sliders: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5',
  lock: 'M6 11h12v9H6ZM8.5 11V8a3.5 3.5 0 0 1 7 0v3',
  download: 'M12 4v11M7 10.5l5 5 5-5M5 20h14',
  upload: 'M12 20V9M7 13.5l5-5 5 5M5 4h14',
  camera: 'M4 8h4l1.5-2.5h5L16 8h4v11H4ZM12 10.5a3 3 0 1 0 0 6 3 3 0 0 0 0-6Z',
  picture: 'M4 5h16v14H4ZM4 16l4.5-4.5L13 16l2.5-2.5L20 18M15 9.5h.01',
  share: 'M12 15V4M8 7.5 12 4l4 3.5M6 12v8h12v-8',
  down: 'M12 5v14M6 13l6 6 6-6',
  chip: 'M7 7h10v10H7ZM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4',
  dots: 'M5 12h.01M12 12h.01M19 12h.01',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class={`icon icon-${name}`} viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
