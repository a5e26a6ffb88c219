// Signals by number, as Linux has them on x86-64 and arm64.

export const SIGINT = 2;
export const SIGKILL = 9;
export const SIGSTOP = 19;
export const SIGTERM = 15;
export const SIGCONT = 18;
