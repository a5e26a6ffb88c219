// The lines of a stream, without their ends.
export async function* lines(
  stream: ReadableStream<Uint8Array>,
): AsyncGenerator<string, undefined, undefined> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const part of stream) {
    text += decoder.decode(part, { stream: true });
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n")) {
      yield text.slice(0, end);
      text = text.slice(end + 1);
    }
  }
}
