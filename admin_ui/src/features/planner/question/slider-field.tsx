import { Slider, TextInput } from "@mantine/core";
import type { ReactNode } from "react";

import { grouped } from "@/format/numbers";

import { nearestStop } from "./stops";

interface SliderFieldProps {
  label: string;
  description?: ReactNode;
  unit: string;
  stops: readonly number[];
  text: string;
  error: string | undefined;
  onChange: (text: string) => void;
}

/** A figure to drag or to type: the slider goes by round stops, the field takes any. */
export function SliderField({ label, description, unit, stops, text, error, onChange }: SliderFieldProps) {
  const value = Number(text.replace(/[,_ ]/g, ""));
  const at = value > 0 ? nearestStop(stops, value) : 0;
  return (
    <div>
      <TextInput
        label={label}
        description={description}
        value={text}
        error={error}
        inputMode="decimal"
        autoComplete="off"
        onChange={({ currentTarget }) => {
          onChange(currentTarget.value);
        }}
      />
      <Slider
        mt={10}
        mb={4}
        size="sm"
        thumbSize={18}
        label={null}
        min={0}
        max={stops.length - 1}
        value={at}
        thumbLabel={label}
        thumbValueText={(stop) => `${grouped(stops[stop] ?? 0)} ${unit}`}
        onChange={(stop) => {
          // A value between two stops is kept until the slider really moves.
          if (stop !== at) onChange(String(stops[stop] ?? ""));
        }}
      />
    </div>
  );
}
