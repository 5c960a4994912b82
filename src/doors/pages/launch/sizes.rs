//! Sizes with a name on the launch form: the presets of the project, or three usual ones and half of the largest machine
//! where there are none. Whether one would start now says the preview beside the form. Decides nothing.

use api::presets::PresetView;
use api::sessions::Resources;
use rules::units::{Bytes, GpuShare};
use serde_json::{Map, Value};
use server::Failure;
use server::access::Caller;
use server::actions::presets;
use server::actions::sessions::NodeOverview;

use super::super::{PagesContext, components, presenter};
use super::{LaunchForm, typed_memory, typed_size, typed_span};
use crate::doors::text::{Language, Text};

/// Sizes that stand side by side; of more, one is picked from a list. Higher: the row of a phone is a page. Lower: a
/// usual set needs a click more.
const CHIP_COUNT: usize = 8;
/// The usual size that has a share of a GPU, and how much. Higher: few fit on one. Lower: small models do not.
const WITH_GPU: &str = "gpu";
const USUAL_SHARE: GpuShare = GpuShare(25);

/// The sizes of a form.
#[derive(Default)]
pub struct SizePicker {
    pub sizes: Vec<NamedSize>,
    /// There are too many of them to stand side by side.
    pub is_list: bool,
    /// The preset that was picked, for the form to send again; empty where none was. None where there are no presets.
    pub picked: Option<String>,
}

/// A size with a name.
pub struct NamedSize {
    pub value: String,
    pub name: String,
    pub note: String,
    /// The fields that it fills, as the page's script takes them.
    pub fill: String,
    pub chosen: bool,
}

/// The fields of the form that a size fills, with what it puts there.
type Filling = Vec<(&'static str, String)>;

/// What each size of the project fills, with its name and its facts.
struct OfferedSize {
    value: String,
    name: String,
    note: String,
    fills: Filling,
    is_preset: bool,
}

impl OfferedSize {
    /// Whether the form holds what this size would put there.
    fn is_held(&self, form: &LaunchForm) -> bool {
        let mut fills = self.fills.iter();
        fills.all(|(name, text)| same(field(form, name), text))
    }

    /// Whether the form is said to have this size: a preset only where it was picked.
    fn is_chosen(&self, form: &LaunchForm) -> bool {
        let picked = !self.is_preset || self.value == form.picked();
        picked && self.is_held(form)
    }
}

/// What became of a size that was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PickedSize {
    /// There is none of this name: the form is as it was.
    Unknown,
    /// The form held it already.
    Held,
    Filled,
}

/// Puts the size that is called `value` into the form, where the form does not hold it yet.
pub(super) async fn apply(
    console: &PagesContext,
    caller: &Caller,
    t: Text,
    machines: &[NodeOverview],
    sent: &mut LaunchForm,
    value: &str,
) -> Result<PickedSize, Failure> {
    let all = named(console, caller, t, machines, sent).await?;
    let Some(size) = all.iter().find(|one| one.value == value) else {
        return Ok(PickedSize::Unknown);
    };
    value.clone_into(&mut sent.picked);
    if size.is_held(sent) {
        return Ok(PickedSize::Held);
    }
    fill(sent, &size.fills);
    Ok(PickedSize::Filled)
}

/// The name of the preset that was picked, where the form still holds its amounts. Others may have the same: equal
/// amounts alone name none.
pub(super) async fn held(
    console: &PagesContext,
    caller: &Caller,
    t: Text,
    sent: &LaunchForm,
) -> Result<Option<String>, Failure> {
    if sent.picked().is_empty() {
        return Ok(None);
    }
    let all = named(console, caller, t, &[], sent).await?.into_iter();
    let mut held = all.filter(|one| one.is_preset && one.is_chosen(sent));
    Ok(held.next().map(|one| one.value))
}

/// Puts the default of the project into a form that asks for nothing yet.
pub(super) async fn begin(
    console: &PagesContext,
    caller: &Caller,
    t: Text,
    sent: &mut LaunchForm,
) -> Result<(), Failure> {
    let amounts = [
        &sent.cpu,
        &sent.memory,
        &sent.gpu,
        &sent.gpu_memory,
        &sent.mig,
        &sent.shm,
        &sent.disk,
        &sent.max_runtime,
    ];
    if amounts.into_iter().any(|field| !field.trim().is_empty()) {
        return Ok(());
    }
    let all = presets::for_launch(&console.server, caller, &sent.project, &sent.owner).await?;
    if let Some(preset) = all.into_iter().find(|preset| preset.default) {
        let size = of_preset(t, preset);
        fill(sent, &size.fills);
        sent.picked = size.value;
    }
    Ok(())
}

/// The sizes of the form.
pub(super) async fn picker(
    console: &PagesContext,
    caller: &Caller,
    t: Text,
    machines: &[NodeOverview],
    sent: &LaunchForm,
) -> Result<SizePicker, Failure> {
    let all = named(console, caller, t, machines, sent).await?;
    let is_list = all.len() > CHIP_COUNT;
    let picked = all.iter().any(|one| one.is_preset).then(|| {
        let mut known = all.iter().map(|one| &one.value);
        let known = known.find(|value| *value == sent.picked());
        known.cloned().unwrap_or_default()
    });
    let sizes = all.into_iter().map(|one| {
        let filling = one.fills.iter().map(|(field, text)| {
            let text: Value = text.clone().into();
            ((*field).to_owned(), text)
        });
        NamedSize {
            fill: Value::Object(filling.collect::<Map<_, _>>()).to_string(),
            chosen: one.is_chosen(sent),
            value: one.value,
            name: one.name,
            note: one.note,
        }
    });
    Ok(SizePicker {
        sizes: sizes.collect(),
        is_list,
        picked,
    })
}

async fn named(
    console: &PagesContext,
    caller: &Caller,
    t: Text,
    machines: &[NodeOverview],
    sent: &LaunchForm,
) -> Result<Vec<OfferedSize>, Failure> {
    let presets = presets::for_launch(&console.server, caller, &sent.project, &sent.owner).await?;
    Ok(match presets.is_empty() {
        true => usual(t, machines),
        false => presets.into_iter().map(|one| of_preset(t, one)).collect(),
    })
}

fn of_preset(t: Text, preset: PresetView) -> OfferedSize {
    let name = preset.heading(t.language == Language::Korean).to_owned();
    let Resources {
        cpu,
        memory,
        shm,
        disk,
        gpu,
        gpu_memory,
        mig,
    } = preset.resources;
    let mut note = Vec::new();
    note.extend(cpu.map(|cpu| t.presets_cores(cpu)));
    note.extend(memory.map(|memory| components::size(memory.0)));
    note.extend(gpu.map(|share| presenter::gpu_amount(t, share)));
    let memory_of_gpu = gpu_memory.map(|memory| components::size(memory.0));
    note.extend(memory_of_gpu.map(|memory| t.presets_gpu_memory_of(memory)));
    note.extend(mig.map(|profile| profile.to_string()));
    note.extend(shm.map(|shm| t.presets_shm_of(components::size(shm.0))));
    note.extend(disk.map(|disk| t.presets_disk_of(components::size(disk.0))));
    let limit = preset.max_runtime_seconds;
    note.extend(limit.map(|seconds| components::span(t, seconds)));
    let mut fills = Filling::new();
    // A size without a GPU asks for none; cores and memory that it says nothing of stay as they are typed.
    fills.extend(cpu.map(|cpu| ("cpu", cpu.to_string())));
    fills.extend(memory.map(|memory| ("memory", typed_memory(memory))));
    let text = |value: Option<String>| value.unwrap_or_default();
    fills.push(("gpu", text(gpu.map(|gpu| gpu.to_string()))));
    fills.push(("gpu_memory", text(gpu_memory.map(typed_memory))));
    fills.push(("mig", text(mig.map(|mig| mig.to_string()))));
    fills.push(("shm", text(shm.map(typed_size))));
    fills.push(("disk", text(disk.map(typed_memory))));
    let limit = preset.max_runtime_seconds.map(typed_span);
    fills.push(("max_runtime", text(limit)));
    // One of any group leaves the choice as it is.
    fills.extend(preset.group.clone().map(|group| ("group", group)));
    OfferedSize {
        value: preset.name.to_string(),
        name,
        note: note.join(" · "),
        fills,
        is_preset: true,
    }
}

/// Sizes that fit this box: three usual ones, one with a share of a GPU where there is one to share, and half of the
/// largest machine.
fn usual(t: Text, machines: &[NodeOverview]) -> Vec<OfferedSize> {
    let largest = machines.iter().max_by_key(|machine| machine.memory);
    let half = largest.map(|machine| {
        let cores = (machine.cpu.0 / 200).max(1);
        let gib = (machine.memory.0 / 2) >> 30;
        ("half", t.launch_half(), cores, gib.max(1))
    });
    let shares = largest.is_some_and(|machine| {
        let mut devices = machine.devices.iter();
        devices.any(|device| !device.is_partitioned())
    });
    let with_gpu = shares.then(|| (WITH_GPU, t.launch_with_gpu(), 1, 4));
    let fits = |cpu: u32, gib: u64| {
        largest
            .is_none_or(|machine| machine.cpu.0 >= cpu * 100 && machine.memory >= Bytes::gib(gib))
    };
    [
        ("small", t.launch_small(), 1, 1),
        ("medium", t.launch_medium(), 2, 4),
        ("large", t.launch_large(), 4, 16),
    ]
    .into_iter()
    .chain(with_gpu)
    .filter(|(_, _, cpu, gib)| fits(*cpu, *gib))
    .chain(half)
    .map(|(value, name, cores, gib)| {
        let mut note = format!("{cores} CPU · {gib} GiB");
        let mut fills = vec![("cpu", cores.to_string()), ("memory", gib.to_string())];
        if value == WITH_GPU {
            note.push_str(&format!(" · {}", presenter::gpu_amount(t, USUAL_SHARE)));
            fills.push(("gpu", USUAL_SHARE.to_string()));
        }
        OfferedSize {
            value: value.to_owned(),
            name: name.to_owned(),
            note,
            fills,
            is_preset: false,
        }
    })
    .collect()
}

/// Whether a field holds what a size would put there: the same text, or the same number.
fn same(typed: &str, put: &str) -> bool {
    let typed = typed.trim();
    let number = |text: &str| text.parse::<f64>().ok();
    typed == put || number(typed).is_some_and(|number_typed| number(put) == Some(number_typed))
}

fn field<'a>(form: &'a LaunchForm, name: &str) -> &'a str {
    match name {
        "cpu" => &form.cpu,
        "memory" => &form.memory,
        "gpu" => &form.gpu,
        "gpu_memory" => &form.gpu_memory,
        "mig" => &form.mig,
        "shm" => &form.shm,
        "disk" => &form.disk,
        "max_runtime" => &form.max_runtime,
        "group" => form.texts.group.as_deref().unwrap_or_default(),
        _ => "",
    }
}

fn fill(form: &mut LaunchForm, all: &[(&'static str, String)]) {
    for (name, text) in all {
        if *name == "group" {
            form.texts.group = Some(text.clone());
            continue;
        }
        let field = match *name {
            "cpu" => &mut form.cpu,
            "memory" => &mut form.memory,
            "gpu" => &mut form.gpu,
            "gpu_memory" => &mut form.gpu_memory,
            "mig" => &mut form.mig,
            "shm" => &mut form.shm,
            "disk" => &mut form.disk,
            "max_runtime" => &mut form.max_runtime,
            _ => continue,
        };
        field.clone_from(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::preset::{Preset, PresetAmounts, PresetScope};
    use rules::units::{CpuShare, GpuShare, Timestamp};

    fn preset(amounts: PresetAmounts) -> PresetView {
        let preset = Preset {
            id: rules::names::PresetId::make(Timestamp::from_millis(1), [0; 10]),
            scope: PresetScope::Site,
            name: rules::names::TenantName::parse("half").expect("a name"),
            title: "Half".to_owned(),
            title_ko: "절반".to_owned(),
            amounts,
            group: None,
            position: 0,
            is_default: false,
            generation: 1,
        };
        PresetView::new(preset, None, None, None)
    }

    #[test]
    fn a_preset_fills_its_own_fields_and_empties_those_of_another_size() {
        let mut form = LaunchForm {
            cpu: "1".to_owned(),
            memory: "1".to_owned(),
            mig: "1g.10gb".to_owned(),
            max_runtime: "8h".to_owned(),
            ..LaunchForm::default()
        };
        let half = of_preset(
            Text::new(Language::English),
            preset(PresetAmounts {
                memory: Some(Bytes::gib(16)),
                gpu: Some(GpuShare(50)),
                ..PresetAmounts::default()
            }),
        );
        assert_eq!(half.name, "Half");
        fill(&mut form, &half.fills);
        let filled = [
            &form.cpu,
            &form.memory,
            &form.gpu,
            &form.mig,
            &form.max_runtime,
        ];
        assert_eq!(filled, ["1", "16", "0.5", "", ""]);
        let chosen = |form: &LaunchForm| half.is_held(form);
        assert!(chosen(&form));
        form.memory = "16.0".to_owned();
        assert!(chosen(&form), "the same number");
        form.gpu = "0.25".to_owned();
        assert!(!chosen(&form));
        let cores = of_preset(
            Text::new(Language::English),
            preset(PresetAmounts {
                cpu: Some(CpuShare(400)),
                ..PresetAmounts::default()
            }),
        );
        fill(&mut form, &cores.fills);
        assert_eq!((form.cpu.as_str(), form.gpu.as_str()), ("4", ""));
    }

    #[test]
    fn a_preset_is_chosen_where_it_was_picked_and_is_still_held() {
        let one = of_preset(
            Text::new(Language::English),
            preset(PresetAmounts {
                cpu: Some(CpuShare(100)),
                ..PresetAmounts::default()
            }),
        );
        let form = |cpu: &str, size: &str, picked: &str| LaunchForm {
            cpu: cpu.to_owned(),
            size: size.to_owned(),
            picked: picked.to_owned(),
            ..LaunchForm::default()
        };
        for (cpu, size, picked, chosen) in [
            ("1", "", "", false),
            ("1", "", "half", true),
            ("1", "half", "", true),
            ("1", "other", "half", false),
            ("2", "half", "half", false),
        ] {
            let is_chosen = one.is_chosen(&form(cpu, size, picked));
            assert_eq!(is_chosen, chosen, "{cpu} {size:?} {picked:?}");
        }
    }
}
