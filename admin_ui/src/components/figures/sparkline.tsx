export interface Sample {
  at: number;
  value: number;
}

interface SparklineProps {
  samples: readonly Sample[];
  windowMs: number;
  label: string;
  /** What the top stands for at least; less than that is drawn as little. */
  least?: number;
  width?: number;
  height?: number;
}

/** One figure of late; time runs to the right edge, so a gap in the polling shows as a gap. */
export function Sparkline({ samples, windowMs, label, least = 1, width = 200, height = 58 }: SparklineProps) {
  const newest = samples.at(-1)?.at ?? 0;
  const peak = Math.max(least, ...samples.map(({ value }) => value));
  const points = samples.map(({ at, value }) => {
    const x = width * (1 - (newest - at) / windowMs);
    const y = height - 2 - (height - 4) * (value / peak);
    return [x.toFixed(1), y.toFixed(1)] as const;
  });
  const first = points[0];
  const line = points.map(([x, y]) => `${x},${y}`).join(" ");
  return (
    <svg
      viewBox={`0 0 ${width} ${height}`}
      width="100%"
      height={height}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
      style={{ color: "var(--mantine-color-wing-6)", display: "block" }}
    >
      <line x1={0} x2={width} y1={height - 1} y2={height - 1} stroke="currentColor" strokeOpacity={0.25} />
      {first && points.length > 1 && (
        <>
          <polygon points={`${first[0]},${height} ${line} ${width},${height}`} fill="currentColor" fillOpacity={0.14} />
          <polyline
            points={line}
            fill="none"
            stroke="currentColor"
            strokeWidth={1.6}
            strokeLinejoin="round"
            vectorEffect="non-scaling-stroke"
          />
        </>
      )}
    </svg>
  );
}
