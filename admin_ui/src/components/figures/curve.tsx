export interface CurvePoint {
  x: number;
  y: number;
  /** Drawn hollow: beyond what is possible. */
  isOut: boolean;
}

interface CurveProps {
  points: readonly CurvePoint[];
  /** The curve in words; a table beside it has the figures. */
  label: string;
  xName: string;
  writeX: (value: number) => string;
  writeY: (value: number) => string;
  /** A place on the x axis worth a line and its name. */
  mark?: { x: number; name: string } | undefined;
}

const [WIDTH, HEIGHT] = [340, 200];
const PLOT = { left: 62, right: 14, top: 12, bottom: 40 };
const MOST_TICKS = 9;

/** One figure over another whose steps double: the x axis is logarithmic, the y axis begins at zero. */
export function Curve({ points, label, xName, writeX, writeY, mark }: CurveProps) {
  const xs = points.map(({ x }) => x);
  const [low, high] = [Math.log2(Math.min(...xs)), Math.log2(Math.max(...xs))];
  const peak = Math.max(...points.map(({ y }) => y));
  const floor = HEIGHT - PLOT.bottom;
  const left = (x: number) => PLOT.left + ((Math.log2(x) - low) / (high - low || 1)) * (WIDTH - PLOT.left - PLOT.right);
  const top = (y: number) => floor - (y / (peak || 1)) * (floor - PLOT.top);
  const line = points.map(({ x, y }) => `${left(x).toFixed(1)},${top(y).toFixed(1)}`).join(" ");
  const isLate = (x: number) => left(x) > WIDTH / 2;
  const every = Math.ceil(xs.length / MOST_TICKS);
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width="100%" role="img" aria-label={label} className="plot">
      {[0, 0.5, 1].map((part) => (
        <g key={part}>
          <line x1={PLOT.left} x2={WIDTH - PLOT.right} y1={top(part * peak)} y2={top(part * peak)} className="plot-grid" />
          <text x={PLOT.left - 8} y={top(part * peak) + 4} textAnchor="end">
            {writeY(part * peak)}
          </text>
        </g>
      ))}
      {xs.filter((_, at) => at % every === 0).map((x) => (
        <text key={x} x={left(x)} y={floor + 16} textAnchor="middle">
          {writeX(x)}
        </text>
      ))}
      <text x={(PLOT.left + WIDTH - PLOT.right) / 2} y={HEIGHT - 5} textAnchor="middle">
        {xName}
      </text>
      {mark && mark.x >= 2 ** low && mark.x <= 2 ** high && (
        <>
          <line x1={left(mark.x)} x2={left(mark.x)} y1={PLOT.top} y2={floor} className="plot-mark" />
          <text x={left(mark.x) + (isLate(mark.x) ? -5 : 5)} y={PLOT.top + 10} textAnchor={isLate(mark.x) ? "end" : "start"}>
            {mark.name}
          </text>
        </>
      )}
      <polyline points={line} className="plot-line" />
      {points.map(({ x, y, isOut }) => (
        <circle key={x} cx={left(x)} cy={top(y)} r={3.5} className={isOut ? "plot-point-out" : "plot-point"} />
      ))}
    </svg>
  );
}
