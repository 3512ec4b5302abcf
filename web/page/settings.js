// Sampling, system prompt and context, kept between visits. What is left alone follows the model's makers.
const key = 'doppler-settings';
const plain = {temperature: 0.8, topK: 40, topP: 0.95, minP: 0, repeatPenalty: 1, maxTokens: 512, seed: '', context: '', system: ''};
const advised = ['temperature', 'topK', 'topP', 'minP', 'repeatPenalty'];

export function loadSettings() {
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem(key) ?? '{}');
  } catch {
    // Settings of another time: begin anew.
  }
  return {...plain, chosen: [], ...kept};
}

/** The options of a generation. */
export function sampling({temperature, topK, topP, minP, repeatPenalty, maxTokens, seed}) {
  return {
    temperature, topK, topP, minP, repeatPenalty, maxTokens,
    seed: seed === '' ? Math.floor(Math.random() * 2 ** 31) : seed,
  };
}

export function settingsForm(settings, recommended) {
  const fields = Object.keys(plain).map((name) => document.getElementById(name));
  const save = () => localStorage.setItem(key, JSON.stringify(settings));
  const show = () => {
    const advice = recommended();
    if (advice?.temperature > 0) {
      for (const name of advised) if (!settings.chosen.includes(name)) settings[name] = Number(advice[name].toPrecision(4));
    }
    for (const field of fields) field.value = settings[field.id];
  };
  for (const field of fields) {
    field.addEventListener('change', () => {
      if (!field.checkValidity()) return void field.reportValidity();
      const number = field.type === 'number';
      if (number && field.value === '' && plain[field.id] !== '') field.value = plain[field.id];
      settings[field.id] = number && field.value !== '' ? Number(field.value) : field.value;
      if (!settings.chosen.includes(field.id)) settings.chosen.push(field.id);
      save();
    });
  }
  document.getElementById('settings-form').addEventListener('submit', (event) => event.preventDefault());
  document.getElementById('reset-settings').addEventListener('click', () => {
    settings.chosen = [];
    for (const name of advised) settings[name] = plain[name];
    show();
    save();
  });
  return {show};
}
