// A question to a model, its answer as it comes, on the visitor's GPU: ?model=URL&question=TEXT
import {Doppler} from 'doppler-web';

const asked = new URLSearchParams(location.search);
const answer = document.getElementById('answer');
try {
  const model = await Doppler.load(new URL(asked.get('model') ?? 'models/tiny/', location.href));
  for await (const piece of model.chat([{role: 'user', content: asked.get('question') ?? 'Tell me a story.'}])) {
    answer.append(piece);
  }
  await model.unload();
  answer.dataset.done = 'true';
} catch (error) {
  answer.textContent = error.message;
  answer.dataset.done = error.code ?? 'error';
}
