import { Code } from "@mantine/core";

/** A sentence of the server's, with what it puts between backticks set as code. */
export function Prose({ children }: { children: string }) {
  return children
    .split(/`([^`]+)`/)
    .map((part, at) => (at % 2 === 1 ? <Code key={at}>{part}</Code> : <span key={at}>{part}</span>));
}
