// Where positions lie in a cache. RING: it has ROWS rows, fewer than there are positions, and position p is in row p mod ROWS; a tile of
// up to 64 keys that begins at a multiple of 64 lies in one piece, since ROWS is one, too. Else position p is in row p.
// Defines: RING, and with it ROWS.
#if RING
fn cacheRow(position: u32) -> u32 { return position % ${ROWS}u; }
// What takes positions of the tile from key0 on to their rows; below 0 it wraps around, as the sum does.
fn tileShift(key0: u32) -> u32 { return cacheRow(key0) - key0; }
// Position first + i, i < ROWS, is in row firstRow(first) + rowAfter(first, i).
fn firstRow(first: u32) -> u32 { return 0u; }
fn rowAfter(first: u32, i: u32) -> u32 {
  let row = cacheRow(first) + i;
  return select(row, row - ${ROWS}u, row >= ${ROWS}u);
}
// The end of what is visible: there are always enough rows.
fn endWithin(end: u32, rows: u32) -> u32 { return end; }
#else
fn cacheRow(position: u32) -> u32 { return position; }
fn tileShift(key0: u32) -> u32 { return 0u; }
fn firstRow(first: u32) -> u32 { return first; }
fn rowAfter(first: u32, i: u32) -> u32 { return i; }
fn endWithin(end: u32, rows: u32) -> u32 { return min(end, rows); }
#endif
