import type { Performance, Phase } from "@/api/types";
import { scaled, significant } from "@/format/quantities";
import { PHASES } from "@/features/performance/kinds";

import { along, attainable, decades, drawn, roofOf, ticks, type Axis } from "./roof";

const [WIDTH, HEIGHT] = [420, 270];
const PLOT = { left: 82, right: 24, top: 12, bottom: 42 };
const NAME = { width: 60, height: 14 };
/** An SVG has no CSS patterns: what is both is drawn as one colour with a rim of the other. */
const MARKS: Record<string, { fill: string; rim: string }> = {
  prefill: { fill: "var(--lk-prefill)", rim: "var(--lk-prefill)" },
  decode: { fill: "var(--lk-decode)", rim: "var(--lk-decode)" },
  mixed: { fill: "var(--lk-decode)", rim: "var(--lk-prefill)" },
};

/** The device's roof, and where each kind of step stands beneath it. */
export function Roofline({ performance }: { performance: Performance }) {
  const roof = roofOf(performance);
  const phases = drawn(performance);
  const x = decades([roof.ridge, ...phases.map(({ intensity }) => intensity)], 3);
  const y = decades([roof.peakFlops, ...phases.map(({ flops_per_s }) => flops_per_s)]);
  const left = (value: number) => PLOT.left + along(x, value) * (WIDTH - PLOT.left - PLOT.right);
  const top = (value: number) => HEIGHT - PLOT.bottom - along(y, value) * (HEIGHT - PLOT.bottom - PLOT.top);
  const start = Math.max(10 ** x.low, 10 ** y.low / roof.peakBandwidth);
  const corners = [start, roof.ridge, 10 ** x.high].map((each) => [left(each), top(attainable(roof, each))] as const);
  const line = corners.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" ");
  const floor = HEIGHT - PLOT.bottom;
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width="100%" role="img" aria-label={inWords(performance, phases)} className="plot">
      <Grid x={x} y={y} left={left} top={top} />
      <polygon points={`${left(start)},${floor} ${line} ${left(10 ** x.high)},${floor}`} className="plot-area" />
      <polyline points={line} className="plot-line" />
      <line x1={left(roof.ridge)} x2={left(roof.ridge)} y1={top(roof.peakFlops)} y2={floor} className="plot-mark" />
      <text x={left(roof.ridge) + 5} y={floor - 7}>{`ridge ${significant(roof.ridge)}`}</text>
      {named(phases.map((phase) => ({ phase, x: left(phase.intensity), y: top(phase.flops_per_s) }))).map((place) => (
        <Mark key={place.phase.kind} {...place} />
      ))}
    </svg>
  );
}

interface GridProps {
  x: Axis;
  y: Axis;
  left: (value: number) => number;
  top: (value: number) => number;
}

function Grid({ x, y, left, top }: GridProps) {
  const floor = HEIGHT - PLOT.bottom;
  return (
    <>
      {ticks(y).map((value) => (
        <g key={value}>
          <line x1={PLOT.left} x2={WIDTH - PLOT.right} y1={top(value)} y2={top(value)} className="plot-grid" />
          <text x={PLOT.left - 6} y={top(value) + 4} textAnchor="end">
            {scaled(value, "FLOP/s").replace(/\.0+ /, " ")}
          </text>
        </g>
      ))}
      {ticks(x).map((value) => (
        <g key={value}>
          <line x1={left(value)} x2={left(value)} y1={PLOT.top} y2={floor} className="plot-grid" />
          <text x={left(value)} y={floor + 16} textAnchor="middle">
            {significant(value)}
          </text>
        </g>
      ))}
      <text x={(PLOT.left + WIDTH - PLOT.right) / 2} y={HEIGHT - 6} textAnchor="middle">
        FLOPs for each byte read
      </text>
    </>
  );
}

interface Place {
  phase: Phase;
  x: number;
  y: number;
}

interface NamedPlace extends Place {
  /** Where the name stands: below its mark, and below the names of marks nearby. */
  nameY: number;
}

function named(places: readonly Place[]): NamedPlace[] {
  return places.reduce<NamedPlace[]>((done, place) => {
    const near = done.filter(({ x }) => Math.abs(x - place.x) < NAME.width);
    let nameY = place.y + 18;
    while (near.some((other) => Math.abs(other.nameY - nameY) < NAME.height)) nameY += NAME.height;
    return [...done, { ...place, nameY }];
  }, []);
}

function Mark({ phase, x, y, nameY }: NamedPlace) {
  const { fill, rim } = MARKS[phase.kind] ?? { fill: "var(--lk-ink)", rim: "var(--lk-ink)" };
  const isFarRight = x > WIDTH - 90;
  return (
    <g>
      <circle cx={x} cy={y} r={5.5} fill={fill} stroke={rim} strokeWidth={3} />
      <text x={isFarRight ? x - 8 : x + 8} y={nameY} textAnchor={isFarRight ? "end" : "start"} className="plot-name">
        {PHASES.find(({ key }) => key === phase.kind)?.label ?? phase.kind}
      </text>
    </g>
  );
}

function inWords(performance: Performance, phases: readonly Phase[]): string {
  const stands = phases.map(
    ({ kind, intensity, flops_per_s }) => `${kind} ${significant(intensity)} FLOPs a byte, ${scaled(flops_per_s, "FLOP/s")}`,
  );
  return [`Roofline with its ridge at ${significant(performance.ridge)} FLOPs a byte`, ...stands].join("; ");
}
