import { Table } from "@mantine/core";
import type { CSSProperties, ReactNode } from "react";

interface FigureTableProps {
  label: string;
  /** The width of the first column, in percent, on wide screens and on narrow ones; all figures share the rest. */
  names: readonly [wide: number, narrow: number];
  children: ReactNode;
}

/** Names to the left, figures to the right edge, rows close together; fixed, so that no new figure moves a column. */
export function FigureTable({ label, names, children }: FigureTableProps) {
  return (
    <Table layout="fixed" verticalSpacing={3} horizontalSpacing={4} fz="sm" className="figures" aria-label={label}>
      <colgroup>
        <col style={{ "--wide": `${names[0]}%`, "--narrow": `${names[1]}%` } as CSSProperties} />
      </colgroup>
      {children}
    </Table>
  );
}
