import { Autocomplete, Button, Collapse, Fieldset, SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";

import { Panel } from "@/components/layout/panel";

import { textOf, type Draft, type Load, type Problems } from "./draft";
import { KNOBS } from "./knobs";
import { SliderField } from "./slider-field";
import { STOPS } from "./stops";
import { SwitchField } from "./switch-field";

/** What comes with the engine, to choose from; the server has the last say. */
const MODELS = ["llama-3-8b", "qwen2.5-7b", "qwen3-8b", "smollm2-135m"];
const DEVICES = ["cpu2", "h200", "rtx4090"];

interface FormProps {
  draft: Draft;
  onChange: (draft: Draft) => void;
  /** By the field's name: what is wrong with what is typed, or what the server refused. */
  problems: Problems;
  running: Running | undefined;
}

/** What holds while the fields are empty. */
export interface Running {
  model: string;
  device: string | null;
}

interface Field {
  text: string;
  error: string | undefined;
  onChange: (text: string) => void;
}

export function QuestionForm({ draft, onChange, problems, running }: FormProps) {
  const field = (name: string): Field => ({
    text: textOf(draft, name),
    error: problems[name],
    onChange: (text) => {
      onChange({ ...draft, typed: { ...draft.typed, [name]: text } });
    },
  });
  const slider = (name: string) => ({ ...field(name), stops: STOPS[name] ?? [] });
  return (
    <Panel testId="question">
      <form
        aria-label="What to plan for"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
        }}
      >
        <Stack gap="md">
          <Fieldset legend="Engine" variant="unstyled" className="fields">
            <Stack gap="xs">
              <NameField label="Model" {...field("model")} names={MODELS} placeholder={running?.model ?? "as the engine's"} />
              <NameField label="Device" {...field("device")} names={DEVICES} placeholder={running?.device ?? "as the engine's"} />
            </Stack>
          </Fieldset>
          <Fieldset legend="Requests" variant="unstyled" className="fields">
            <Stack gap="sm">
              <SliderField label="Prompt tokens" unit="tokens" {...slider("prompt_tokens")} />
              <SliderField label="Answer tokens" unit="tokens" {...slider("output_tokens")} />
              <LoadFields draft={draft} onChange={onChange} slider={slider} />
            </Stack>
          </Fieldset>
          <Adapters draft={draft} onChange={onChange} slider={slider} problem={problems.adapters} />
          <Live draft={draft} onChange={onChange} problem={problems.live} />
          <KnobFields field={field} />
        </Stack>
      </form>
    </Panel>
  );
}

type PartProps = Pick<FormProps, "draft" | "onChange">;
type SliderOf = (name: string) => Field & { stops: readonly number[] };

interface NameFieldProps extends Field {
  label: string;
  names: string[];
  placeholder: string;
}

function NameField({ label, names, text, error, placeholder, onChange }: NameFieldProps) {
  return (
    <Autocomplete label={label} data={names} value={text} error={error} placeholder={placeholder} onChange={onChange} spellCheck={false} />
  );
}

function LoadFields({ draft, onChange, slider }: PartProps & { slider: SliderOf }) {
  return (
    <div>
      <SegmentedControl
        fullWidth
        size="xs"
        mb="xs"
        aria-label="Load given as"
        data={[
          { value: "concurrency", label: "At once" },
          { value: "requests_per_s", label: "A second" },
        ]}
        value={draft.load}
        onChange={(value) => {
          const load: Load = value === "concurrency" ? "concurrency" : "requests_per_s";
          onChange({ ...draft, load });
        }}
      />
      {draft.load === "concurrency" ? (
        <SliderField label="Requests at once" unit="requests" {...slider("concurrency")} />
      ) : (
        <SliderField label="Requests a second" unit="requests a second" {...slider("requests_per_s")} />
      )}
    </div>
  );
}

function Adapters({ draft, onChange, slider, problem }: PartProps & { slider: SliderOf; problem: string | undefined }) {
  return (
    <Stack gap="sm">
      <SwitchField
        label="With adapters"
        checked={draft.hasAdapters}
        error={problem}
        onChange={(hasAdapters) => {
          onChange({ ...draft, hasAdapters });
        }}
      />
      {draft.hasAdapters && (
        <>
          <SliderField label="Adapters" unit="adapters" {...slider("adapters.count")} />
          <SliderField label="Rank" unit="" description="Of the query and value projections." {...slider("adapters.rank")} />
        </>
      )}
    </Stack>
  );
}

function Live({ draft, onChange, problem }: PartProps & { problem: string | undefined }) {
  return (
    <SwitchField
      label="Calibrate from the running engine"
      description="Step times as this engine has made them, instead of the device's data sheet. What it has never done is refused, not guessed."
      checked={draft.live}
      error={problem}
      onChange={(live) => {
        onChange({ ...draft, live });
      }}
    />
  );
}

/** Closed at first; open when something in it is set or refused, so that no refusal is hidden. */
function KnobFields({ field }: { field: (name: string) => Field }) {
  const fields = KNOBS.map((knob) => ({ ...knob, ...field(`knobs.${knob.name}`) }));
  const [wished, { toggle }] = useDisclosure(fields.some(({ text }) => text !== ""));
  const opened = wished || fields.some(({ error }) => error !== undefined);
  return (
    <div>
      <Button variant="default" size="xs" fullWidth aria-expanded={opened} aria-controls="planned-knobs" onClick={toggle}>
        {opened ? "Fewer settings" : "More settings"}
      </Button>
      <Collapse expanded={opened} id="planned-knobs" transitionDuration={0}>
        <Stack gap="xs" pt="sm">
          <Text fz="xs" c="dimmed">
            An empty field is as the running engine has it, or automatic on another device.
          </Text>
          {fields.map(({ name, label, example, text, error, onChange }) => (
            <TextInput
              key={name}
              label={label}
              placeholder={example}
              value={text}
              error={error}
              autoComplete="off"
              onChange={({ currentTarget }) => {
                onChange(currentTarget.value);
              }}
            />
          ))}
        </Stack>
      </Collapse>
    </div>
  );
}
