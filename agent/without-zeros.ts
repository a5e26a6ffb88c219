// Takes the zeros out of a compiled program. Bun puts the program behind the runtime's variables, and fills what those
// take in memory with 1.8 MB of zeros in the file; here the variables are given without bytes again, and the program as a
// segment of its own (in place of the one header that nothing reads, the notes').

const LOAD = 1;
const NOTE = 4;
const NOBITS = 8;
const READ_WRITE = 6;
const PROGRAM_SECTION = ".bun";

interface Segment {
  at: number;
  type: number;
  flags: number;
  offset: number;
  address: number;
  fileBytes: number;
  memoryBytes: number;
  align: number;
}

interface Section {
  at: number;
  name: string;
  type: number;
  address: number;
  offset: number;
  bytes: number;
}

const u64 = (file: Buffer, at: number): number => Number(file.readBigUInt64LE(at));
const put64 = (file: Buffer, at: number, value: number): number => file.writeBigUInt64LE(BigInt(value), at);

function segments(file: Buffer): Segment[] {
  const [start, size] = [u64(file, 32), file.readUInt16LE(54)];
  return Array.from({ length: file.readUInt16LE(56) }, (_, i) => {
    const at = start + i * size;
    return {
      at,
      type: file.readUInt32LE(at),
      flags: file.readUInt32LE(at + 4),
      offset: u64(file, at + 8),
      address: u64(file, at + 16),
      fileBytes: u64(file, at + 32),
      memoryBytes: u64(file, at + 40),
      align: u64(file, at + 48),
    };
  });
}

function write(
  file: Buffer,
  { at, type, flags, offset, address, fileBytes, memoryBytes, align }: Segment,
): void {
  file.writeUInt32LE(type, at);
  file.writeUInt32LE(flags, at + 4);
  const numbers = [offset, address, address, fileBytes, memoryBytes, align];
  for (const [i, value] of numbers.entries()) put64(file, at + 8 + 8 * i, value);
}

function sections(file: Buffer): Section[] {
  const [start, size, names] = [u64(file, 40), file.readUInt16LE(58), file.readUInt16LE(62)];
  const text = u64(file, start + names * size + 24);
  return Array.from({ length: file.readUInt16LE(60) }, (_, i) => {
    const at = start + i * size;
    const name = text + file.readUInt32LE(at);
    return {
      at,
      name: file.toString("latin1", name, file.indexOf(0, name)),
      type: file.readUInt32LE(at + 4),
      address: u64(file, at + 16),
      offset: u64(file, at + 24),
      bytes: u64(file, at + 32),
    };
  });
}

const upTo = (value: number, align: number): number => Math.ceil(value / align) * align;

/** The same program without the zeros; throws where it is not laid out as expected. */
export function withoutZeros(program: Buffer): Buffer {
  const file = Buffer.from(program);
  const all = sections(file);
  const own = all.find(({ name }) => name === PROGRAM_SECTION);
  const zeros = all.find(({ name, type }) => name === ".bss" && type === NOBITS);
  const headers = segments(file);
  const data = headers.find(
    ({ type, address, memoryBytes }) =>
      type === LOAD && own !== undefined && address < own.address && own.address < address + memoryBytes,
  );
  const spare = headers.at(-1);
  if (own === undefined || zeros === undefined || data === undefined || spare?.type !== NOTE)
    throw new Error("the compiled program is not laid out as it was expected");
  const { align } = data;
  const from = data.offset + zeros.address - data.address;
  const to = upTo(from, align) + (own.address % align);
  const end = zeros.address + zeros.bytes;
  const empty = file.subarray(from, own.offset).every((byte) => byte === 0);
  if (!empty || upTo(end, align) > own.address || to > own.offset)
    throw new Error("there is something where the compiled program was expected to have zeros");
  const less = own.offset - to;
  write(file, {
    ...data,
    at: spare.at,
    flags: READ_WRITE,
    offset: to,
    address: own.address,
    fileBytes: data.address + data.fileBytes - own.address,
    memoryBytes: data.address + data.memoryBytes - own.address,
  });
  write(file, { ...data, fileBytes: zeros.address - data.address, memoryBytes: end - data.address });
  for (const { at, offset } of all) if (offset >= own.offset) put64(file, at + 24, offset - less);
  put64(file, 40, u64(file, 40) - less);
  return Buffer.concat([file.subarray(0, from), Buffer.alloc(to - from), file.subarray(own.offset)]);
}
