interface ErrorBarProps {
  value: number;
  low: number | null;
  high: number | null;
  /** Another figure to compare with, as a dot. */
  measured?: number;
  /** What the right end stands for. */
  top: number;
}

/** A value with its error band, on a line that begins at zero. The figures beside it speak; the bar is decoration. */
export function ErrorBar({ value, low, high, measured, top }: ErrorBarProps) {
  const at = (figure: number) => `${(100 * Math.min(Math.max(figure, 0), top)) / Math.max(top, Number.MIN_VALUE)}%`;
  return (
    <div className="error-bar" aria-hidden>
      {low !== null && high !== null && (
        <span className="error-band" style={{ left: at(low), width: `calc(${at(high)} - ${at(low)})` }} />
      )}
      <span className="error-value" style={{ left: at(value) }} />
      {measured !== undefined && <span className="error-measured" style={{ left: at(measured) }} />}
    </div>
  );
}
