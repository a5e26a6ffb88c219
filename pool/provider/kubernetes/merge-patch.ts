// JSON merge patch (RFC 7396): null takes away, objects are merged, everything else replaces.

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function merge(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const merged: Record<string, unknown> = isObject(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete merged[key];
    else merged[key] = merge(merged[key], value);
  }
  return merged;
}

/** The patched value; neither argument is changed. Whoever patches answers for the shape: the API server checks it. */
export function mergePatch<T extends object>(target: T, patch: Record<string, unknown>): T {
  return merge(target, patch) as T;
}
