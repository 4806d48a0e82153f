import 'reflect-metadata';
import { MikroOrmModule } from '@mikro-orm/nestjs';
import { Body, Controller, Get, HttpCode, Inject, Injectable, Module, Param, Post, Res, Scope } from '@nestjs/common';
import { NestFactory, REQUEST } from '@nestjs/core';
import { MikroOrmSessionService, type AdkServices, type Message } from 'adk-mikro-orm';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { ADK_SERVICES, AdkModule } from './adk-module.js';
import { appName, ask, type Said } from './agent.js';
import { eventStream } from './event-stream.js';
import config from './mikro-orm.config.js';

/** Created for each request, which says whose sessions they are. */
@Injectable({ scope: Scope.REQUEST })
class Conversations {
  constructor(
    @Inject(REQUEST) private readonly request: IncomingMessage,
    @Inject(ADK_SERVICES) private readonly services: AdkServices,
  ) {}

  ask(sessionId: string, said: Said): Promise<Message[]> {
    return ask(this.services, this.key(sessionId), said);
  }

  events(response: ServerResponse): void {
    eventStream(this.services.log, (sessionId) => this.key(sessionId)).listener(this.request, response);
  }

  private key(sessionId: string) {
    // Instead of your guard, which adds the user to the request.
    return { appName, userId: String(this.request.headers['x-user'] ?? 'ada'), sessionId };
  }
}

@Controller('sessions')
class SessionsController {
  constructor(private readonly conversations: Conversations) {}

  @Post(':id/messages')
  @HttpCode(200)
  ask(@Param('id') id: string, @Body() said: Said): Promise<Message[]> {
    return this.conversations.ask(id, said);
  }

  @Get(':id/events')
  events(@Res() response: ServerResponse) {
    this.conversations.events(response);
  }
}

@Controller('health')
class HealthController {
  constructor(private readonly sessionService: MikroOrmSessionService) {}

  @Get()
  async check() {
    await this.sessionService.getAppState({ appName }); // the server answers, and has our tables
    return { status: 'ok' };
  }
}

@Module({
  imports: [MikroOrmModule.forRoot(config), AdkModule],
  controllers: [SessionsController, HealthController],
  providers: [Conversations],
})
class AppModule {}

const app = await NestFactory.create(AppModule, { logger: ['error', 'warn'] });
app.enableShutdownHooks(); // on SIGTERM runs that are under way end first; the module closes the ORM
await app.listen(Number(process.env.PORT ?? 8080));
console.log('listening', (app.getHttpServer() as { address(): unknown }).address());
