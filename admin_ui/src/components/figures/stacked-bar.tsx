export interface BarPart {
  key: string;
  value: number;
  /** A CSS background: a colour or a pattern. */
  paint: string;
}

interface StackedBarProps {
  parts: readonly BarPart[];
  /** What the whole track stands for. */
  whole: number;
  /** The bar in words; without it the figures beside it speak and the bar is decoration. */
  label?: string;
  height?: number;
}

/** Parts of a whole side by side. The rest of the track stays empty; a tiny part stays visible. */
export function StackedBar({ parts, whole, label, height = 18 }: StackedBarProps) {
  const spoken = label === undefined ? { "aria-hidden": true } : { role: "img", "aria-label": label };
  return (
    <div className="stacked-bar" style={{ height }} {...spoken}>
      {parts
        .filter(({ value }) => value > 0)
        .map(({ key, value, paint }) => (
          <span key={key} style={{ flexBasis: `${(100 * value) / whole}%`, background: paint }} />
        ))}
    </div>
  );
}

export function Swatch({ paint }: { paint: string }) {
  return <span aria-hidden className="swatch" style={{ background: paint }} />;
}
