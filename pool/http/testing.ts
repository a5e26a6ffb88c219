// For tests: Prometheus' text format 0.0.4, read as strictly as a scraper does
// (prometheus.io/docs/instrumenting/exposition_formats).

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*";
const HELP = new RegExp(`^# HELP (${NAME}) (.+)$`);
const TYPE = new RegExp(`^# TYPE (${NAME}) (counter|gauge|histogram)$`);
const SAMPLE = new RegExp(`^(${NAME})(?:\\{(.*)\\})? (-?\\d+(?:\\.\\d+)?(?:e[+-]?\\d+)?|[+-]Inf|NaN)$`);
const LABEL = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/;

function labelsOf(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  for (let rest = text; rest !== ""; ) {
    const found = LABEL.exec(rest);
    const [whole = "", name = "", value = ""] = found ?? [];
    if (found === null || name in labels) throw new Error(`not labels: ${text}`);
    labels[name] = value;
    rest = rest.slice(whole.length);
  }
  return labels;
}

/** Throws on the first line that a scraper would refuse. */
export function parseMetrics(text: string): Sample[] {
  if (!text.endsWith("\n")) throw new Error("the last line has no end");
  const types = new Map<string, string>();
  const seen = new Set<string>();
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    if (line === "" || HELP.test(line)) continue;
    const type = TYPE.exec(line);
    if (type?.[1] !== undefined && type[2] !== undefined) {
      if (types.has(type[1])) throw new Error(`twice: ${line}`);
      types.set(type[1], type[2]);
      continue;
    }
    const [, name, labels = "", value = ""] = SAMPLE.exec(line) ?? [];
    if (name === undefined) throw new Error(`no sample: ${line}`);
    const family = types.has(name) ? name : name.replace(/_(bucket|sum|count)$/, "");
    if (!types.has(family)) throw new Error(`no type before: ${line}`);
    if (types.get(family) === "counter" && !name.endsWith("_total")) throw new Error(`no _total: ${line}`);
    const series = line.slice(0, line.lastIndexOf(" "));
    if (seen.has(series)) throw new Error(`twice: ${line}`);
    seen.add(series);
    samples.push({ name, labels: labelsOf(labels), value: Number(value.replace("Inf", "Infinity")) });
  }
  return samples;
}

/** The value of the one sample with these labels; undefined where there is none. */
export function reading(
  samples: readonly Sample[],
  name: string,
  labels: Record<string, string> = {},
): number | undefined {
  const fits = (sample: Sample): boolean =>
    sample.name === name && Object.entries(labels).every(([key, value]) => sample.labels[key] === value);
  const found = samples.filter(fits);
  if (found.length > 1) throw new Error(`${found.length} samples of ${name} ${JSON.stringify(labels)}`);
  return found[0]?.value;
}
