// Kubernetes' quantities: "500m", "64", "512Gi", "1e3". Pure.
const SUFFIXES: Record<string, number> = {
  "": 1,
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** The number it stands for; undefined for what is none. */
export function parseQuantity(text: string): number | undefined {
  const match = text.match(/^([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([a-zA-Z]{0,2})$/);
  const scale = SUFFIXES[match?.[2] ?? "none"];
  return match === null || scale === undefined ? undefined : Number(match[1]) * scale;
}

export type Amounts = Readonly<Record<string, number>>;

/** What cannot be read counts as nothing. */
export function amountsOf(quantities: Readonly<Record<string, string>>): Amounts {
  return Object.fromEntries(
    Object.entries(quantities).map(([name, text]) => [name, parseQuantity(text) ?? 0]),
  );
}

export function plus(a: Amounts, b: Amounts): Amounts {
  const sum: Record<string, number> = { ...a };
  for (const [name, amount] of Object.entries(b)) sum[name] = (sum[name] ?? 0) + amount;
  return sum;
}

export function minus(a: Amounts, b: Amounts): Amounts {
  const rest: Record<string, number> = { ...a };
  for (const [name, amount] of Object.entries(b)) rest[name] = Math.max(0, (rest[name] ?? 0) - amount);
  return rest;
}
