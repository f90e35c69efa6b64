import { ScrollArea } from "@mantine/core";
import type { ReactNode } from "react";

/** A wide table on a narrow screen: it scrolls by itself, by keyboard too. */
export function TableScroll({ label, children }: { label: string; children: ReactNode }) {
  return <ScrollArea viewportProps={{ tabIndex: 0, role: "group", "aria-label": label }}>{children}</ScrollArea>;
}
