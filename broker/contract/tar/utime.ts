// A time for utimes and its like.

/** Seconds since 1970 as digits: of a number below 0, which is before 1970, Node and Bun make now. */
export const utimeOf = (seconds: number): string => String(seconds);
