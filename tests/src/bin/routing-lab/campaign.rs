//! All runs that were asked for, spread over the cores, and what is written of them.

use anyhow::{Context as _, Result, ensure};
use gateway_tests::lab::calibrate::capacity;
use gateway_tests::lab::catalogue::{self, Entry};
use gateway_tests::lab::clairvoyant;
use gateway_tests::lab::contenders;
use gateway_tests::lab::experiment::{Job, Measured, Trial, spread, spread_and_take};
use gateway_tests::lab::outcome::Run;
use gateway_tests::lab::plot::{self, Curve};
use gateway_tests::lab::policy::Contender;
use gateway_tests::lab::report::{self, Report, Row};
use gateway_tests::lab::trace::DIRECTORY_VARIABLE;

use super::args::Args;
use super::progress::{Progress, minutes};
use super::{origin, write};

/// Highest load at which the bound is computed.
const MOST_BOUNDED: f64 = 0.9;

/// The plan and its results so far.
pub(crate) struct Campaign<'a> {
    args: &'a Args,
    origin: String,
    trials: Vec<Trial>,
    /// Trial by trial, policy by policy, seed by seed: the order of the rows.
    plan: Vec<Job>,
    /// By place in the plan.
    rows: Vec<Option<Row>>,
    /// Rows that were there before and are not in the plan.
    others: Vec<Row>,
    /// Jobs that have not ended, by trial.
    open: Vec<usize>,
    /// Runs to be drawn, with their places in the plan.
    drawn: Vec<(usize, Run)>,
    simulated: f64,
}

impl<'a> Campaign<'a> {
    /// Measures capacities and makes the plan.
    pub(crate) fn new(
        args: &'a Args,
        entries: &[&'static Entry],
        policies: &[Contender],
    ) -> Result<Self> {
        let origin = origin::origin(args.span())?;
        let capacities = spread(entries, |entry| capacity(entry));
        let mut trials = Vec::new();
        for (&entry, capacity) in entries.iter().zip(capacities) {
            println!("{}: {}; capacity {capacity:.1} requests/s", entry.name, entry.about);
            let loads = if args.loads.is_empty() { entry.loads } else { &args.loads };
            trials.extend(loads.iter().map(|&load| Trial { entry, load, capacity }));
        }
        let plan = plan(args, &trials, policies);
        let mut campaign = Self {
            args,
            origin,
            open: vec![0; trials.len()],
            rows: vec![None; plan.len()],
            trials,
            plan,
            others: Vec::new(),
            drawn: Vec::new(),
            simulated: 0.0,
        };
        if args.resume {
            campaign.take_up(origin::rows(&args.json, &campaign.origin)?);
        }
        Ok(campaign)
    }

    /// Puts rows of an earlier run where they belong.
    fn take_up(&mut self, rows: Vec<Row>) {
        for row in rows {
            let is_it = |job: &Job| {
                let trial = &self.trials[job.trial];
                trial.entry.name == row.scenario
                    && trial.load.to_bits() == row.load.to_bits()
                    && job.contender.name == row.policy
                    && job.seed == row.seed
            };
            match self.plan.iter().position(is_it) {
                Some(at) => self.rows[at] = Some(row),
                None => self.others.push(row),
            }
        }
    }

    /// Runs what is not there yet.
    pub(crate) fn run(mut self) -> Result<()> {
        ensure!(!self.plan.is_empty(), "nothing to run; give at least one seed");
        write(&origin::file(&self.args.json), &self.origin)?;
        let todo: Vec<(usize, Job)> = (0..self.plan.len())
            .filter(|&at| self.rows[at].is_none())
            .map(|at| (at, self.plan[at]))
            .collect();
        for (_, job) in &todo {
            self.open[job.trial] += 1;
        }
        let mut progress = Progress::new(todo.iter().map(|(_, job)| job.contender.name));
        let (trials, span) = (self.trials.clone(), self.args.span());
        let work =
            |&(_, job): &(usize, Job)| trials[job.trial].measure(&job.contender, job.seed, span);
        spread_and_take(&todo, work, |number, measured| {
            let (at, job) = todo[number];
            progress.ran(job.contender.name, measured.took);
            self.note(at, measured);
            self.open[job.trial] -= 1;
            match self.open[job.trial] {
                0 => self.trial_done(job.trial, &progress),
                _ => Ok(()),
            }
        })?;
        self.finish(&progress)
    }

    fn note(&mut self, at: usize, measured: Measured) {
        let job = &self.plan[at];
        let trial = &self.trials[job.trial];
        self.simulated += measured.run.end.since_origin().as_secs_f64();
        self.rows[at] = Some(Row {
            scenario: trial.entry.name.to_owned(),
            policy: job.contender.name.to_owned(),
            seed: job.seed,
            load: trial.load,
            summary: measured.summary,
        });
        if job.seed == 0 && !self.args.no_plots {
            self.drawn.push((at, measured.run));
        }
    }

    /// All rows, in the order of the catalogue, whatever was run first.
    fn report(&self) -> Report {
        let scenarios: Vec<&str> = catalogue::entries().map(|entry| entry.name).collect();
        let policies: Vec<&str> = contenders().map(|contender| contender.name).collect();
        let place = |all: &[&str], name: &str| all.iter().position(|known| *known == name);
        let mut rows: Vec<Row> =
            self.others.iter().chain(self.rows.iter().flatten()).cloned().collect();
        rows.sort_by(|a, b| {
            let name = |row: &Row| place(&scenarios, &row.scenario);
            let who = |row: &Row| (place(&policies, &row.policy), row.seed);
            name(a).cmp(&name(b)).then(a.load.total_cmp(&b.load)).then(who(a).cmp(&who(b)))
        });
        Report { rows }
    }

    /// Says what came of a trial, and keeps everything so far.
    fn trial_done(&mut self, trial: usize, progress: &Progress) -> Result<()> {
        let Trial { entry, load, .. } = self.trials[trial];
        let rows = self.plan.iter().zip(&self.rows).filter(|(job, _)| job.trial == trial);
        let own = Report { rows: rows.filter_map(|(_, row)| row.clone()).collect() };
        progress.interrupt();
        for group in own.groups() {
            println!("\n{} at {:.0} %\n{}", entry.name, load * 100.0, report::text(&group));
        }
        if !self.args.no_plots {
            self.draw(trial)?;
        }
        write(&self.args.json, &self.report().json())
    }

    /// Draws the first seed of every policy.
    fn draw(&mut self, trial: usize) -> Result<()> {
        let Trial { entry, load, .. } = self.trials[trial];
        let (mut own, others) = std::mem::take(&mut self.drawn)
            .into_iter()
            .partition::<Vec<_>, _>(|(at, _)| self.plan[*at].trial == trial);
        self.drawn = others;
        // Those of an earlier run are not there any more.
        for (at, job) in self.plan.iter().enumerate() {
            let is_missing = job.trial == trial && job.seed == 0;
            if is_missing && !own.iter().any(|(known, _)| *known == at) {
                own.push((at, self.trials[trial].run(&job.contender, 0, self.args.span())));
            }
        }
        own.sort_unstable_by_key(|(at, _)| *at);
        let policy = |at: usize| self.plan[at].contender.name;
        let curves: Vec<Curve<'_>> =
            own.iter().map(|(at, run)| Curve { policy: policy(*at), run }).collect();
        let engines: Vec<String> =
            (entry.fleet)().into_iter().map(|spec| spec.profile.name).collect();
        let title = format!("{} at {:.0} % load", entry.name, load * 100.0);
        for (name, picture) in plot::pictures(&stem(entry.name, load), &title, &curves, &engines) {
            write(&self.args.directory().join(name), &picture)?;
        }
        Ok(())
    }

    fn finish(&self, progress: &Progress) -> Result<()> {
        let (report, about) = (self.report(), self.about());
        write(&self.args.json, &report.json())?;
        let pictures = |scenario: &str, load: f64| -> Vec<String> {
            let stem = stem(scenario, load);
            let names = ["ttft", "queue", "share"].map(|kind| format!("{stem}-{kind}.svg"));
            names.into_iter().filter(|name| self.args.directory().join(name).exists()).collect()
        };
        let page = report::html(&report, &about, pictures);
        write(&self.args.directory().join("index.html"), &page)?;
        if let Some(file) = &self.args.report {
            write(file, &report::results(&report, &about))
                .context("the results are in the JSON file; --resume --report FILE writes them")?;
        }
        println!(
            "\n{} rows in {} after {}; {:.0} times faster than real time on each core",
            report.rows.len(),
            self.args.json.display(),
            minutes(progress.took()),
            self.simulated / progress.worked().as_secs_f64().max(f64::EPSILON)
        );
        Ok(())
    }

    fn about(&self) -> String {
        let span = self.args.span();
        let traces = match std::env::var_os(DIRECTORY_VARIABLE) {
            Some(_) => "the public files",
            None => "our samples of them",
        };
        format!(
            "{} s of arrivals after {} s of warm-up, on virtual time. Traces are {traces}.",
            span.length.as_secs(),
            span.warm_up.as_secs()
        )
    }
}

/// Everything that is to be run. The bound is left out where queues grow without end,
/// unless it was asked for: each of its forecasts runs the whole backlog, and a run takes
/// minutes.
fn plan(args: &Args, trials: &[Trial], policies: &[Contender]) -> Vec<Job> {
    let mut plan = Vec::new();
    for (number, trial) in trials.iter().enumerate() {
        for &contender in policies {
            let is_bound = contender.name == clairvoyant::CONTENDER.name;
            if is_bound && trial.load > MOST_BOUNDED && args.policies.is_empty() {
                continue;
            }
            let most = if is_bound { args.bound_seeds } else { u64::MAX };
            let seeds = 0..args.seeds.min(most);
            plan.extend(seeds.map(|seed| Job { trial: number, contender, seed }));
        }
    }
    plan
}

fn stem(scenario: &str, load: f64) -> String {
    format!("{scenario}-{:.0}", load * 100.0)
}
