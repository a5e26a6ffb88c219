// How long the burst's daemons take from their container's start: log-normal about this median, ms. Measured on the real
// node: 16 to 26.
export const BOOT_MEDIAN_MS = 50;
