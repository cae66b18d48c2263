// Runs before the first paint: a theme that was chosen earlier goes before the system's.
try {
  const theme = localStorage.getItem('theme');
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // storage is switched off: the system's theme it is
}
